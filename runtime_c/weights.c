/* weights.c - the base address of the constant data: a section of the library, or a mapped file.
 *
 * A side file has a head of one page: a magic number, the digest of its data and their length. Each
 * context maps it; the pages are the system's and shared. */

typedef struct onnxc_weights_head {
    char magic[8];
    uint8_t digest[32];
    uint64_t bytes;
} onnxc_weights_head;

enum { ONNXC_WEIGHTS_HEAD_BYTES = 4096 };

/* `path`, or the side file in the directory of this library. */
static int32_t onnxc_weights_path(const char *path, char *text, size_t room) {
    Dl_info info;
    int length;
    if (path != NULL) {
        length = snprintf(text, room, "%s", path);
    } else {
        if (dladdr((const void *)&onnxc_functions, &info) == 0 || info.dli_fname == NULL)
            return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "where '%.200s' is cannot be found out",
                                onnxc_tables.weights_file);
        const char *slash = strrchr(info.dli_fname, '/');
        int directory = slash != NULL ? (int)(slash - info.dli_fname + 1) : 0;
        length = snprintf(text, room, "%.*s%s", directory, info.dli_fname,
                          onnxc_tables.weights_file);
    }
    if (length < 0 || (size_t)length >= room)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "the path of the weights is too long");
    return ONNXC_OK;
}

static int32_t onnxc_map_weights(onnxc_context *context, int file, const char *path) {
    onnxc_weights_head head;
    struct stat status;
    bool sound = fstat(file, &status) == 0 && S_ISREG(status.st_mode)
        && status.st_size >= ONNXC_WEIGHTS_HEAD_BYTES
        && pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head
        && memcmp(head.magic, "ONNXCWTS", 8) == 0
        && (uint64_t)(status.st_size - ONNXC_WEIGHTS_HEAD_BYTES) == onnxc_tables.weights_bytes
        && head.bytes == onnxc_tables.weights_bytes
        && memcmp(head.digest, onnxc_tables.weights_digest, sizeof head.digest) == 0;
    if (!sound)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE,
                            "'%.300s' does not hold the weights of model '%.80s'", path,
                            onnxc_tables.model->name);
    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "'%.300s' cannot be mapped: errno %d", path,
                            errno);
    context->weights_map = map;
    context->weights_map_bytes = status.st_size;
    context->weights = (const char *)map + ONNXC_WEIGHTS_HEAD_BYTES;
    return ONNXC_OK;
}

static int32_t onnxc_find_weights(onnxc_context *context, const char *given) {
    char path[4096];
    if (onnxc_tables.weights != NULL) {
        context->weights = *onnxc_tables.weights;
        return ONNXC_OK;
    }
    if (onnxc_tables.weights_file == NULL) return ONNXC_OK; /* a model without constants */
    int32_t status = onnxc_weights_path(given, path, sizeof path);
    if (status != ONNXC_OK) return status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "'%.300s' cannot be opened: errno %d", path,
                            errno);
    status = onnxc_map_weights(context, file, path);
    close(file);
    return status;
}

static void onnxc_unmap_weights(onnxc_context *context) {
    if (context->weights_map != NULL)
        munmap(context->weights_map, (size_t)context->weights_map_bytes);
}
