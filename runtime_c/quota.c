/* SPDX-License-Identifier: Apache-2.0 */
/* quota.c - how many processors' time the control groups of Linux leave this process.
 *
 * The process's group and every one above it may have a quota of time in a period: in version 2 the file cpu.max
 * has both ("max" for none), in version 1 each has a file. The least counts. */

#ifndef ONNXC_ROOT
#define ONNXC_ROOT "" /* where /proc and /sys are */
#endif

enum { ONNXC_PATH_BYTES = 4096, ONNXC_NO_QUOTA = INT32_MAX };

/* The two numbers that a file begins with, 0 for none; whether it can be read. */
static bool onnxc_read_numbers(const char *folder, const char *name, int64_t numbers[2]) {
    char path[ONNXC_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    char line[64] = "", *rest;
    char *found = fgets(line, sizeof line, file);
    fclose(file);
    numbers[0] = strtoll(line, &rest, 10);
    numbers[1] = strtoll(rest, NULL, 10);
    return found != NULL;
}

/* The quota of one group, in processors, rounded up. */
static int32_t onnxc_quota_of(const char *folder) {
    int64_t both[2], period[2];
    if (!onnxc_read_numbers(folder, "cpu.max", both)) {
        if (!onnxc_read_numbers(folder, "cpu.cfs_quota_us", both)) return ONNXC_NO_QUOTA;
        if (!onnxc_read_numbers(folder, "cpu.cfs_period_us", period)) return ONNXC_NO_QUOTA;
        both[1] = period[0];
    }
    if (both[0] <= 0 || both[1] <= 0) return ONNXC_NO_QUOTA;
    int64_t processors = both[0] / both[1] + (both[0] % both[1] != 0);
    return processors < ONNXC_NO_QUOTA ? (int32_t)processors : ONNXC_NO_QUOTA;
}

/* The least quota of the group at `base` + `group` and of those above it. Shortens `group`. */
static int32_t onnxc_least_quota(const char *base, char *group) {
    int32_t least = ONNXC_NO_QUOTA;
    for (;;) {
        char folder[ONNXC_PATH_BYTES];
        if (snprintf(folder, sizeof folder, "%s%s", base, group) < (int)sizeof folder) {
            int32_t quota = onnxc_quota_of(folder);
            if (quota < least) least = quota;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL) return least;
        *slash = '\0';
    }
}

/* Whether a list with commas has the word "cpu". */
static bool onnxc_has_cpu(const char *controllers) {
    for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0')) return true;
    }
    return false;
}

/* Processors' worth of time that this process may use, ONNXC_NO_QUOTA where nothing limits it. */
static int32_t onnxc_quota(void) {
    FILE *file = fopen(ONNXC_ROOT "/proc/self/cgroup", "re");
    if (file == NULL) return ONNXC_NO_QUOTA;
    int32_t least = ONNXC_NO_QUOTA;
    char line[ONNXC_PATH_BYTES], base[ONNXC_PATH_BYTES];
    while (fgets(line, sizeof line, file) != NULL) { /* number:controllers:/group */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) continue;
        controllers++, *group++ = '\0';
        if (*controllers != '\0' && !onnxc_has_cpu(controllers)) continue;
        const char *mounted = *controllers == '\0' ? "" : "/cpu";
        if (snprintf(base, sizeof base, ONNXC_ROOT "/sys/fs/cgroup%s", mounted) >= (int)sizeof base) continue;
        int32_t quota = onnxc_least_quota(base, group);
        if (quota < least) least = quota;
    }
    fclose(file);
    return least;
}
