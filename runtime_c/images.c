/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - decode_image: bytes of an image file -> its pixels. Only in the runtime of models that decode
 * (-DONNXC_IMAGES, codegen/library/runtime.py), since it needs the libraries of five formats; BMP and PNM are
 * read here.
 *
 * A decoder writes 8-bit RGB. It returns false where the bytes are no such image, or with the error recorded
 * where there is no memory. Nothing prints. */
#include <setjmp.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
#include <tiffio.h>
#include <webp/decode.h>
#if __has_include(<openjpeg.h>)
#include <openjpeg.h>
#elif __has_include(<openjpeg-2.5/openjpeg.h>)
#include <openjpeg-2.5/openjpeg.h>
#else
#include <openjpeg-2.4/openjpeg.h>
#endif

/* An encoded image, and its pixels once they are there. */
typedef struct onnxc_image {
    onnxc_context *context;
    const uint8_t *bytes;
    int64_t size, at; /* at: where a stream reads */
    int64_t height, width;
    uint8_t *rgb;
} onnxc_image;

/* Room for the pixels; false where there is none. */
static bool onnxc_image_room(onnxc_image *image, int64_t height, int64_t width) {
    int64_t pixels;
    if (height <= 0 || width <= 0 || !onnxc_multiply(height, width, &pixels)) return false;
    image->height = height, image->width = width;
    image->rgb = onnxc_call_scratch(image->context, pixels, 3);
    return image->rgb != NULL;
}

/* JPEG -------------------------------------------------------------------------------------------- */

typedef struct onnxc_jpeg_errors {
    struct jpeg_error_mgr manager;
    jmp_buf failed;
} onnxc_jpeg_errors;

static void onnxc_jpeg_fails(j_common_ptr decoder) {
    longjmp(((onnxc_jpeg_errors *)decoder->err)->failed, 1);
}

/* A warning that the file ends too early is an error. */
static void onnxc_jpeg_message(j_common_ptr decoder, int level) {
    if (level < 0 && decoder->err->msg_code == JWRN_JPEG_EOF) onnxc_jpeg_fails(decoder);
}

static bool onnxc_decode_jpeg(onnxc_image *image) {
    struct jpeg_decompress_struct decoder;
    onnxc_jpeg_errors errors;
    decoder.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = onnxc_jpeg_fails;
    errors.manager.emit_message = onnxc_jpeg_message;
    if (setjmp(errors.failed)) {
        jpeg_destroy_decompress(&decoder);
        return false;
    }
    jpeg_create_decompress(&decoder);
    jpeg_mem_src(&decoder, (unsigned char *)image->bytes, (unsigned long)image->size);
    jpeg_read_header(&decoder, TRUE);
    decoder.out_color_space = JCS_RGB;
    jpeg_start_decompress(&decoder);
    bool fits = onnxc_image_room(image, decoder.output_height, decoder.output_width);
    while (fits && decoder.output_scanline < decoder.output_height) {
        JSAMPROW row = image->rgb + 3 * image->width * (int64_t)decoder.output_scanline;
        jpeg_read_scanlines(&decoder, &row, 1);
    }
    if (fits) jpeg_finish_decompress(&decoder);
    jpeg_destroy_decompress(&decoder);
    return fits;
}

/* PNG --------------------------------------------------------------------------------------------- */

static void onnxc_png_fails(png_structp decoder, png_const_charp message) {
    (void)message;
    png_longjmp(decoder, 1);
}

static void onnxc_png_warns(png_structp decoder, png_const_charp message) {
    (void)decoder, (void)message;
}

static void onnxc_png_read(png_structp decoder, png_bytep to, size_t count) {
    onnxc_image *image = png_get_io_ptr(decoder);
    if ((int64_t)count > image->size - image->at) png_error(decoder, "it ends too early");
    memcpy(to, image->bytes + image->at, count);
    image->at += (int64_t)count;
}

/* Transparency is left out: the colours are those stored. */
static bool onnxc_decode_png(onnxc_image *image) {
    png_structp decoder = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, onnxc_png_fails, onnxc_png_warns);
    png_infop info = decoder == NULL ? NULL : png_create_info_struct(decoder);
    if (info == NULL || setjmp(png_jmpbuf(decoder))) {
        png_destroy_read_struct(&decoder, &info, NULL);
        return false;
    }
    png_set_read_fn(decoder, image, onnxc_png_read);
    png_read_info(decoder, info);
    png_set_expand(decoder);
    png_set_strip_16(decoder);
    png_set_strip_alpha(decoder);
    png_set_gray_to_rgb(decoder);
    int passes = png_set_interlace_handling(decoder);
    png_read_update_info(decoder, info);
    bool fits = onnxc_image_room(image, png_get_image_height(decoder, info), png_get_image_width(decoder, info));
    for (int pass = 0; fits && pass < passes; pass++)
        for (int64_t y = 0; y < image->height; y++)
            png_read_row(decoder, image->rgb + 3 * image->width * y, NULL);
    png_destroy_read_struct(&decoder, &info, NULL);
    return fits;
}

/* WebP -------------------------------------------------------------------------------------------- */

static bool onnxc_decode_webp(onnxc_image *image) {
    int width, height;
    if (!WebPGetInfo(image->bytes, (size_t)image->size, &width, &height)) return false;
    if (!onnxc_image_room(image, height, width)) return false;
    size_t bytes = (size_t)(3 * image->height * image->width);
    return WebPDecodeRGBInto(image->bytes, (size_t)image->size, image->rgb, bytes, 3 * width) != NULL;
}

/* TIFF -------------------------------------------------------------------------------------------- */

static tmsize_t onnxc_tiff_read(thandle_t handle, void *to, tmsize_t count) {
    onnxc_image *image = handle;
    int64_t left = image->at < image->size ? image->size - image->at : 0;
    if (count > left) count = left;
    if (count > 0) memcpy(to, image->bytes + image->at, (size_t)count);
    image->at += count;
    return count;
}

static tmsize_t onnxc_tiff_write(thandle_t handle, void *from, tmsize_t count) {
    (void)handle, (void)from, (void)count;
    return 0;
}

static toff_t onnxc_tiff_seek(thandle_t handle, toff_t offset, int whence) {
    onnxc_image *image = handle;
    int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? image->at : image->size;
    if (!onnxc_add(from, (int64_t)offset, &from) || from < 0) return (toff_t)-1;
    return (toff_t)(image->at = from);
}

static int onnxc_tiff_close(thandle_t handle) {
    (void)handle;
    return 0;
}

static toff_t onnxc_tiff_size(thandle_t handle) {
    return (toff_t)((onnxc_image *)handle)->size;
}

#if TIFFLIB_VERSION >= 20221213
static int onnxc_tiff_says(TIFF *tiff, void *data, const char *module, const char *format, va_list arguments) {
    (void)tiff, (void)data, (void)module, (void)format, (void)arguments;
    return 1;
}
#endif

static TIFF *onnxc_open_tiff(onnxc_image *image) {
#if TIFFLIB_VERSION >= 20221213
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (options == NULL) return NULL;
    TIFFOpenOptionsSetErrorHandlerExtR(options, onnxc_tiff_says, NULL);
    TIFFOpenOptionsSetWarningHandlerExtR(options, onnxc_tiff_says, NULL);
    TIFF *tiff = TIFFClientOpenExt("image", "rm", image, onnxc_tiff_read, onnxc_tiff_write, onnxc_tiff_seek,
                                   onnxc_tiff_close, onnxc_tiff_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
#else
    TIFFSetErrorHandler(NULL); /* for the whole process: older versions know no other way */
    TIFFSetWarningHandler(NULL);
    return TIFFClientOpen("image", "rm", image, onnxc_tiff_read, onnxc_tiff_write, onnxc_tiff_seek,
                          onnxc_tiff_close, onnxc_tiff_size, NULL, NULL);
#endif
}

static bool onnxc_decode_tiff(onnxc_image *image) {
    uint32_t width = 0, height = 0;
    TIFF *tiff = onnxc_open_tiff(image);
    if (tiff == NULL) return false;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
    bool read = onnxc_image_room(image, height, width);
    int64_t pixels = image->height * image->width;
    uint32_t *raster = read ? onnxc_call_scratch(image->context, pixels, sizeof *raster) : NULL;
    read = raster != NULL && TIFFReadRGBAImageOriented(tiff, width, height, raster, ORIENTATION_TOPLEFT, 1);
    for (int64_t k = 0; read && k < pixels; k++) {
        image->rgb[3 * k] = TIFFGetR(raster[k]);
        image->rgb[3 * k + 1] = TIFFGetG(raster[k]);
        image->rgb[3 * k + 2] = TIFFGetB(raster[k]);
    }
    TIFFClose(tiff);
    return read;
}

/* JPEG 2000 --------------------------------------------------------------------------------------- */

static OPJ_SIZE_T onnxc_jpeg2000_read(void *to, OPJ_SIZE_T count, void *handle) {
    onnxc_image *image = handle;
    OPJ_SIZE_T left = (OPJ_SIZE_T)(image->size - image->at);
    if (left == 0) return (OPJ_SIZE_T)-1;
    if (count > left) count = left;
    memcpy(to, image->bytes + image->at, count);
    image->at += (int64_t)count;
    return count;
}

static OPJ_BOOL onnxc_jpeg2000_seek(OPJ_OFF_T offset, void *handle) {
    onnxc_image *image = handle;
    if (offset < 0 || offset > image->size) return OPJ_FALSE;
    image->at = offset;
    return OPJ_TRUE;
}

static OPJ_OFF_T onnxc_jpeg2000_skip(OPJ_OFF_T count, void *handle) {
    onnxc_image *image = handle;
    return onnxc_jpeg2000_seek(image->at + count, image) ? count : -1;
}

/* The pixels of components of one size, grey or red, green and blue, of any precision. */
static bool onnxc_take_components(onnxc_image *image, const opj_image_t *found) {
    int64_t count = found->numcomps >= 3 ? 3 : 1;
    bool alike = found->numcomps > 0 && found->color_space != OPJ_CLRSPC_SYCC;
    for (int64_t c = 0; alike && c < count; c++) {
        const opj_image_comp_t *plane = &found->comps[c];
        alike = plane->data != NULL && plane->w == found->comps->w && plane->h == found->comps->h
            && plane->prec > 0 && plane->prec <= 31;
    }
    if (!alike || !onnxc_image_room(image, found->comps->h, found->comps->w)) return false;
    for (int64_t k = 0; k < image->height * image->width; k++)
        for (int64_t c = 0; c < 3; c++) {
            const opj_image_comp_t *plane = &found->comps[count == 3 ? c : 0];
            int64_t value = plane->data[k] + (plane->sgnd ? (int64_t)1 << (plane->prec - 1) : 0);
            int64_t most = ((int64_t)1 << plane->prec) - 1;
            value = value < 0 ? 0 : value > most ? most : value;
            image->rgb[3 * k + c] = (uint8_t)(plane->prec >= 8 ? value >> (plane->prec - 8) : value * 255 / most);
        }
    return true;
}

static bool onnxc_decode_jpeg2000(onnxc_image *image) {
    opj_dparameters_t parameters;
    opj_image_t *found = NULL;
    opj_codec_t *decoder = opj_create_decompress(image->bytes[0] == 0 ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K);
    opj_stream_t *stream = opj_stream_default_create(OPJ_TRUE);
    bool read = decoder != NULL && stream != NULL;
    if (read) {
        opj_set_default_decoder_parameters(&parameters);
        opj_stream_set_user_data(stream, image, NULL);
        opj_stream_set_user_data_length(stream, (OPJ_UINT64)image->size);
        opj_stream_set_read_function(stream, onnxc_jpeg2000_read);
        opj_stream_set_skip_function(stream, onnxc_jpeg2000_skip);
        opj_stream_set_seek_function(stream, onnxc_jpeg2000_seek);
        read = opj_setup_decoder(decoder, &parameters) && opj_read_header(stream, decoder, &found)
            && opj_decode(decoder, stream, found) && opj_end_decompress(decoder, stream)
            && onnxc_take_components(image, found);
    }
    opj_image_destroy(found);
    if (stream != NULL) opj_stream_destroy(stream);
    if (decoder != NULL) opj_destroy_codec(decoder);
    return read;
}

/* PNM --------------------------------------------------------------------------------------------- */

/* The next number of a header or of plain pixels, of one digit at most where `bit`; -1 where there is none. */
static int64_t onnxc_pnm_number(onnxc_image *image, bool bit) {
    const uint8_t *bytes = image->bytes;
    int64_t value = -1;
    while (image->at < image->size && (strchr(" \t\r\n\v\f", bytes[image->at]) != NULL || bytes[image->at] == '#'))
        if (bytes[image->at++] == '#')
            while (image->at < image->size && bytes[image->at] != '\n') image->at++;
    for (; image->at < image->size && bytes[image->at] >= '0' && bytes[image->at] <= '9'; image->at++) {
        value = (value < 0 ? 0 : 10 * value) + bytes[image->at] - '0';
        if (value > INT32_MAX) return -1;
        if (bit) return image->at++, value;
    }
    return value;
}

/* P1 to P6: bits (1 is black), grey or colours, as text or bytes, of any greatest value below 65536. */
static bool onnxc_decode_pnm(onnxc_image *image) {
    int kind = image->bytes[1] - '0', form = (kind - 1) % 3, channels = form == 2 ? 3 : 1;
    bool plain = kind <= 3;
    image->at = 2;
    int64_t width = onnxc_pnm_number(image, false), height = onnxc_pnm_number(image, false);
    int64_t most = form == 0 ? 1 : onnxc_pnm_number(image, false);
    image->at += !plain; /* one space */
    if (most < 1 || most > 65535 || !onnxc_image_room(image, height, width)) return false;
    int64_t wide = most > 255 ? 2 : 1, row = form == 0 ? (width + 7) / 8 : width * channels * wide;
    if (!plain && row > (image->size - image->at) / height) return false;
    for (int64_t k = 0; k < height * width * channels; k++) {
        const uint8_t *at = image->bytes + image->at;
        int64_t x = k % (width * channels), y = k / (width * channels), value;
        if (plain) value = onnxc_pnm_number(image, form == 0);
        else if (form == 0) value = at[row * y + x / 8] >> (7 - x % 8) & 1;
        else value = wide == 1 ? at[row * y + x] : at[row * y + 2 * x] << 8 | at[row * y + 2 * x + 1];
        if (value < 0 || value > most) return false;
        if (form == 0) value = 1 - value;
        uint8_t level = (uint8_t)((value * 255 + most / 2) / most);
        if (channels == 3) image->rgb[k] = level;
        else memset(image->rgb + 3 * k, level, 3);
    }
    return true;
}

/* BMP --------------------------------------------------------------------------------------------- */

static int64_t onnxc_little(const onnxc_image *image, int64_t at, int bytes) {
    int64_t value = 0;
    for (int k = bytes - 1; k >= 0; k--) value = value << 8 | (at + k < image->size ? image->bytes[at + k] : 0);
    return value;
}

/* The 8-bit level of the bits of a word under a mask. */
static uint8_t onnxc_masked(uint32_t word, uint32_t mask) {
    if (mask == 0) return 0;
    uint32_t most = mask >> __builtin_ctz(mask);
    return (uint8_t)(((uint64_t)((word & mask) >> __builtin_ctz(mask)) * 255 + most / 2) / most);
}

/* Without compression, of 1 to 32 bits a pixel. */
static bool onnxc_decode_bmp(onnxc_image *image) {
    int64_t head = onnxc_little(image, 14, 4), core = head == 12, side = core ? 2 : 4;
    int64_t width = onnxc_little(image, 18, (int)side), height = onnxc_little(image, 18 + side, (int)side);
    if (!core) height = (int32_t)height;
    int64_t bits = onnxc_little(image, core ? 24 : 28, 2), packing = core ? 0 : onnxc_little(image, 30, 4);
    bool upwards = height > 0, masks = packing == 3 || packing == 6;
    if (!upwards) height = -height;
    int64_t pixels = onnxc_little(image, 10, 4), palette = 14 + head + (masks && head == 40 ? 12 : 0);
    int64_t row = (width * bits + 31) / 32 * 4;
    bool known = bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32;
    if (!known || (packing != 0 && !(masks && bits >= 16)) || width <= 0 || height <= 0 || (int32_t)width < 0)
        return false;
    if (pixels > image->size || row > (image->size - pixels) / height) return false;
    if (!onnxc_image_room(image, height, width)) return false;
    uint32_t mask[3] = {0xff0000, 0xff00, 0xff};
    if (bits == 16) mask[0] = 0x7c00, mask[1] = 0x3e0, mask[2] = 0x1f;
    for (int c = 0; masks && c < 3; c++) mask[c] = (uint32_t)onnxc_little(image, 54 + 4 * c, 4);
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            int64_t from = pixels + row * (upwards ? height - 1 - y : y);
            uint32_t word = bits >= 8 ? (uint32_t)onnxc_little(image, from + x * bits / 8, (int)bits / 8)
                : (uint32_t)(image->bytes[from + x * bits / 8] >> (8 - bits - x * bits % 8) & ((1 << bits) - 1));
            if (bits <= 8) word = (uint32_t)onnxc_little(image, palette + (core ? 3 : 4) * (int64_t)word, 3);
            for (int c = 0; c < 3; c++)
                image->rgb[3 * (width * y + x) + c] = bits <= 8 ? (uint8_t)(word >> (16 - 8 * c))
                    : onnxc_masked(word, mask[c]);
        }
    return true;
}

/* The operator ------------------------------------------------------------------------------------ */

static bool onnxc_begins(const onnxc_image *image, const char *bytes, int64_t count) {
    return image->size > count && memcmp(image->bytes, bytes, (size_t)count) == 0;
}

/* Reads an image of whichever format its first bytes tell. */
static bool onnxc_decode(onnxc_image *image) {
    if (onnxc_begins(image, "\xff\xd8\xff", 3)) return onnxc_decode_jpeg(image);
    if (onnxc_begins(image, "\x89PNG\r\n\x1a\n", 8)) return onnxc_decode_png(image);
    if (onnxc_begins(image, "II*\0", 4) || onnxc_begins(image, "MM\0*", 4)) return onnxc_decode_tiff(image);
    if (onnxc_begins(image, "\0\0\0\x0cjP  ", 8) || onnxc_begins(image, "\xff\x4f\xff\x51", 4))
        return onnxc_decode_jpeg2000(image);
    if (onnxc_begins(image, "RIFF", 4) && image->size > 12 && memcmp(image->bytes + 8, "WEBP", 4) == 0)
        return onnxc_decode_webp(image);
    if (onnxc_begins(image, "BM", 2) && image->size > 30) return onnxc_decode_bmp(image);
    if (onnxc_begins(image, "P", 1) && image->bytes[1] >= '1' && image->bytes[1] <= '6')
        return onnxc_decode_pnm(image);
    return false;
}

/* decode_image: bytes of a file uint8 [n] -> uint8 [height, width, channels], no pixels where it cannot be decoded.
 * Attributes: 0 red, green and blue, 1 blue, green and red, 2 grey (ITU-R 601). */
ONNXC_OPERATOR(decode_image) {
    onnxc_image image = {.context = context, .bytes = in->data, .size = onnxc_elements(in->rank, in->dims)};
    if (!onnxc_decode(&image)) {
        if (context->status != ONNXC_OK) return context->status;
        image.height = image.width = 0;
    }
    int64_t order = attributes[1], dims[] = {image.height, image.width, order == 2 ? 1 : 3};
    uint8_t *to = onnxc_call_output(context, out, attributes[0], ONNXC_UINT8, 3, dims);
    if (to == NULL) return context->status;
    for (int64_t k = 0; k < image.height * image.width; k++) {
        const uint8_t *rgb = image.rgb + 3 * k;
        if (order == 2) to[k] = (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
        else for (int c = 0; c < 3; c++) to[3 * k + c] = rgb[order == 1 ? 2 - c : c];
    }
    return ONNXC_OK;
}
