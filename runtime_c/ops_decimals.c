/* SPDX-License-Identifier: Apache-2.0 */
/* ops_decimals.c - numbers to the texts of their decimal digits, and back.
 *
 * A float is written with the fewest digits that read back as the same element, plainly where its
 * decimal exponent is in [-4, 16), else as in 1e+16. The program's locale is of no account. */

enum { ONNXC_NUMBER_BYTES = 32 }; /* the longest: -1.2345678901234567e-308 */

/* The element that a text is, by the type's own rounding; `text` is terminated. */
static void onnxc_read_float(int32_t dtype, const char *text, char *element) {
    if (dtype == ONNXC_FLOAT32) {
        float value = strtof(text, NULL);
        memcpy(element, &value, sizeof value);
    } else {
        onnxc_from_double(dtype, strtod(text, NULL), element);
    }
}

/* Lays out decimal digits d.ddd * 10^exponent; returns the length. */
static int onnxc_lay_out_digits(char *text, bool negative, const char *digits, int count, int exponent) {
    char *to = text;
    if (negative) *to++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *to++ = digits[0];
        if (count > 1) *to++ = '.';
        memcpy(to, digits + 1, (size_t)(count - 1));
        to += count - 1;
        return (int)(to - text) + sprintf(to, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    }
    int first = exponent < 0 ? exponent : 0, last = count - 1 > exponent + 1 ? count - 1 : exponent + 1;
    for (int k = first; k <= last; k++) { /* at least one digit on either side of the point */
        *to++ = k >= 0 && k < count ? digits[k] : '0';
        if (k == (exponent < 0 ? first : exponent)) *to++ = '.';
    }
    return (int)(to - text);
}

/* Makes the digits of d.ddde+XX the next greater of their number; false when all are nines. */
static bool onnxc_next_digits(char *scientific) {
    char *last = strchr(scientific, 'e') - 1;
    for (; *last == '9' || *last == '.'; last--) {
        if (last == scientific || last[-1] == '-') return false;
        if (*last == '9') *last = '0';
    }
    *last = (char)(*last + 1);
    return true;
}

/* Whether the text reads as the element. */
static bool onnxc_reads_as(int32_t dtype, const char *text, const char *element) {
    char back[8];
    onnxc_read_float(dtype, text, back);
    return memcmp(back, element, (size_t)onnxc_dtype_bytes(dtype)) == 0;
}

/* 10 to the power of 0 to 27, which this type holds exactly. */
static const long double onnxc_powers[] = {
    1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
    1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};

static long double onnxc_scaled(long double value, int power) {
    for (; power > 27; power -= 27) value *= onnxc_powers[27];
    for (; power < -27; power += 27) value /= onnxc_powers[27];
    return power < 0 ? value / onnxc_powers[-power] : value * onnxc_powers[power];
}

/* The fewest digits of a positive float32 or float64, found in whole numbers of 18 digits: how many there are, d.ddd
 * times 10 to *exponent; 0 where the last bits of these decide, or the type is not wide enough. */
static int onnxc_few_digits(int32_t dtype, double value, char *digits, int *exponent) {
    enum { ERROR = 4 }; /* of such a number, generously */
    int binary, bits = dtype == ONNXC_FLOAT32 ? 24 : 53, least = dtype == ONNXC_FLOAT32 ? -149 : -1074;
    if (LDBL_MANT_DIG < 64) return 0;
    bool narrow = frexp(value, &binary) == 0.5 && binary - bits > least; /* the element below is nearer */
    long double half = ldexpl(0.5L, binary - bits > least ? binary - bits : least);
    int tens = (int)floor((binary - 1) * 0.30102999566398120); /* or one less, mended below */
    long double scaled = onnxc_scaled(value, 17 - tens);
    if (scaled >= 1e18L) scaled = onnxc_scaled(value, 17 - ++tens);
    if (scaled < 1e17L) scaled = onnxc_scaled(value, 17 - --tens);
    if (scaled < 1e17L || scaled >= 1e18L) return 0;
    int64_t whole = llroundl(scaled), above = (int64_t)onnxc_scaled(half, 17 - tens);
    int64_t below = narrow ? above / 2 : above, unit = 10, found = 0, off = 0;
    int count = 17;
    for (; 10 * unit <= below && count > 1; count--) unit *= 10; /* this many digits are enough; are fewer? */
    for (;; count--, unit *= 10) {
        int64_t nearest = (whole + unit / 2) / unit, away = nearest * unit - whole;
        if (away > ERROR - below && away < above - ERROR) {
            found = nearest;
            off = away;
            if (count == 1) break;
        } else if ((away > -below - ERROR && away < above + ERROR) || (away < 0 && away + unit < above + ERROR)) {
            return 0;
        } else {
            count++;
            unit /= 10;
            break;
        }
    }
    if (found == 0 || unit / 2 - llabs(off) <= ERROR) return 0; /* as near as another */
    *exponent = tens + (found * unit == 1000000000000000000);
    if (*exponent > tens) count = 1, found = 1;
    for (int k = count - 1; k >= 0; k--, found /= 10) digits[k] = (char)('0' + found % 10);
    return count;
}

/* Writes a float element, of any of the four types, and returns the length. */
static int onnxc_write_float(char *text, int32_t dtype, const char *element) {
    double value = onnxc_to_double(dtype, element);
    if (isnan(value)) return sprintf(text, "nan");
    if (isinf(value)) return sprintf(text, value < 0 ? "-inf" : "inf");
    char scientific[40], digits[24];
    int count = 0, tens;
    if ((dtype == ONNXC_FLOAT32 || dtype == ONNXC_FLOAT64) && value != 0)
        count = onnxc_few_digits(dtype, fabs(value), digits, &tens);
    if (count > 0) return onnxc_lay_out_digits(text, signbit(value), digits, count, tens);
    int low = 0, high = dtype == ONNXC_FLOAT64 ? 16 : 8; /* always enough; and more than enough is, too */
    for (;;) {
        int precision = (low + high) / 2;
        snprintf(scientific, sizeof scientific, "%.*e", precision, value);
        /* At a power of two, where the element below is nearer, the nearest digits may be too low. */
        bool reads = onnxc_reads_as(dtype, scientific, element)
            || (onnxc_next_digits(scientific) && onnxc_reads_as(dtype, scientific, element));
        if (low >= high) break;
        if (reads) high = precision;
        else low = precision + 1;
    }
    const char *from = scientific + (scientific[0] == '-');
    for (; *from != 'e'; from++)
        if (*from != '.') digits[count++] = *from;
    return onnxc_lay_out_digits(text, signbit(value), digits, count, atoi(from + 1));
}

/* Writes an integer and returns the length. */
static int onnxc_write_integer(char *text, bool negative, uint64_t magnitude) {
    char digits[20], *to = text;
    int count = 0;
    do digits[count++] = (char)('0' + magnitude % 10);
    while ((magnitude /= 10) > 0);
    if (negative) *to++ = '-';
    while (count > 0) *to++ = digits[--count];
    return (int)(to - text);
}

static int onnxc_write_number(char *text, int32_t dtype, const char *element) {
    int64_t integer = dtype == ONNXC_INT64 ? ONNXC_LOAD(int64_t, element) : 0;
    switch (dtype) {
    case ONNXC_FLOAT16: case ONNXC_BFLOAT16: case ONNXC_FLOAT32: case ONNXC_FLOAT64:
        return onnxc_write_float(text, dtype, element);
    case ONNXC_INT64:
        return onnxc_write_integer(text, integer < 0, integer < 0 ? -(uint64_t)integer : (uint64_t)integer);
    case ONNXC_UINT64: return onnxc_write_integer(text, false, ONNXC_LOAD(uint64_t, element));
    case ONNXC_BOOL: return onnxc_write_integer(text, false, *element != 0);
    default: break;
    }
    double value = onnxc_to_double(dtype, element);
    if (value == floor(value) && fabs(value) < 1e18) return onnxc_write_integer(text, value < 0, (uint64_t)fabs(value));
    float single = (float)value; /* of the types of 8 bits or less */
    return onnxc_write_float(text, ONNXC_FLOAT32, (const char *)&single);
}

/* Numbers are written and read as in C whatever the program's locale is; null when that fails. */
static locale_t onnxc_enter_locale(locale_t *plain) {
    *plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return *plain != (locale_t)0 ? uselocale(*plain) : (locale_t)0;
}

static void onnxc_leave_locale(locale_t before, locale_t plain) {
    uselocale(before);
    freelocale(plain);
}

/* numbers_to_strings: x -> the text of each element. Attributes: codes of both types. */
ONNXC_OPERATOR(numbers_to_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), size = onnxc_dtype_bytes(in->dtype), bytes;
    if (!onnxc_multiply(count, ONNXC_NUMBER_BYTES, &bytes)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, count);
    onnxc_object *tensor = onnxc_new_strings(context, in->rank, in->dims, bytes);
    if (tensor == NULL) return context->status;
    locale_t plain = (locale_t)0, before = onnxc_enter_locale(&plain);
    if (before == (locale_t)0) {
        onnxc_drop(tensor);
        return onnxc_raise(context, ONNXC_OUT_OF_MEMORY, bytes);
    }
    onnxc_string *strings = tensor->value.data;
    char *text = tensor->text;
    for (int64_t i = 0; i < count; i++) {
        strings[i].data = text;
        strings[i].length = onnxc_write_number(text, in->dtype, (const char *)in->data + size * i);
        text += strings[i].length;
        *text++ = 0;
    }
    onnxc_leave_locale(before, plain);
    return onnxc_call_strings(context, out, attributes[0], tensor);
}

/* Whether the whole text is a number of C's, but a hexadecimal one or nan(...). */
static bool onnxc_is_float(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return *end == 0 && strpbrk(text, "xX(") == NULL;
}

/* Reads what has a fraction or an exponent as an integer that fits the type, without its fraction. */
static bool onnxc_read_truncated(int32_t dtype, bool is_unsigned, const char *text, char *element) {
    double value;
    int64_t size = onnxc_dtype_bytes(dtype);
    if (!onnxc_is_float(text, &value) || !isfinite(value)) return false;
    if (dtype == ONNXC_BOOL) {
        *element = value != 0;
        return true;
    }
    value = trunc(value);
    double above = ldexp(1, (int)(8 * size) - !is_unsigned);
    if (value >= above || value < (is_unsigned ? 0 : -above)) return false;
    uint64_t whole = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    memcpy(element, &whole, (size_t)size); /* the low bytes: little-endian, as all targets are */
    return true;
}

/* Reads a decimal number as an integer that fits the type; `text` has no spaces around. */
static bool onnxc_read_integer(int32_t dtype, const char *text, char *element) {
    char *end;
    int64_t size = onnxc_dtype_bytes(dtype);
    bool is_unsigned = dtype == ONNXC_UINT8 || dtype == ONNXC_UINT16 || dtype == ONNXC_UINT32 || dtype == ONNXC_UINT64;
    errno = 0;
    if (dtype == ONNXC_UINT64) {
        unsigned long long value = strtoull(text, &end, 10);
        if (*end != 0) return onnxc_read_truncated(dtype, is_unsigned, text, element);
        memcpy(element, &value, sizeof value);
        return errno == 0 && (text[0] != '-' || value == 0);
    }
    long long value = strtoll(text, &end, 10);
    if (*end != 0) return onnxc_read_truncated(dtype, is_unsigned, text, element);
    if (errno != 0) return false;
    if (dtype == ONNXC_BOOL) {
        *element = value != 0;
        return true;
    }
    int bits = (int)(8 * size) - !is_unsigned;
    if (size < 8 && (value >> bits != 0) && (is_unsigned || value >> bits != -1)) return false;
    memcpy(element, &value, (size_t)size); /* the low bytes */
    return true;
}

/* Reads a plain decimal number of few digits, which one rounding gives exactly; false where it is another. */
static bool onnxc_read_plain(int32_t dtype, const char *text, char *element) {
    bool negative = *text == '-';
    const char *from = text += negative || *text == '+';
    int64_t digits = 0;
    int point = -1, count = 0;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && point < 0); text++) {
        if (*text == '.') point = count;
        else if (++count > 15) return false;
        else digits = 10 * digits + (*text - '0');
    }
    if (*text != 0 || count == 0 || text - from > 16) return false;
    double value = (double)digits / (point < 0 ? 1 : (double)onnxc_powers[count - point]);
    if (negative) value = -value;
    if (dtype == ONNXC_FLOAT32) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        if ((bits & 0x1fffffff) == 0x10000000) return false; /* half way: what was rounded off decides */
    }
    onnxc_from_double(dtype, value, element);
    return true;
}

/* Reads a number of the type from a terminated text; false when it is none. */
static bool onnxc_read_number(int32_t dtype, char *text, char *element) {
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\n\r\f\v", text[length - 1]) != NULL) text[--length] = 0;
    text += strspn(text, " \t\n\r\f\v");
    if (*text == 0) return false;
    if (dtype != ONNXC_FLOAT32 && dtype != ONNXC_FLOAT64 && dtype != ONNXC_FLOAT16 && dtype != ONNXC_BFLOAT16)
        return onnxc_read_integer(dtype, text, element);
    if (onnxc_read_plain(dtype, text, element)) return true;
    double value;
    if (!onnxc_is_float(text, &value)) return false;
    onnxc_read_float(dtype, text, element);
    return true;
}

/* The failure of a text, terminated, that is no number of the type. Long ones are cut. */
static int32_t onnxc_fail_text(onnxc_context *context, int32_t dtype, const char *text) {
    return onnxc_report(context, ONNXC_INVALID_VALUE, "%.300s: the text '%.60s' is no %s",
                        onnxc_node_name(context, context->node), text, onnxc_dtype_name(dtype));
}

/* strings_to_numbers: x -> the number that each text is, without its fraction for integers; surrounding
 * spaces are allowed. Attributes: codes of both types. */
ONNXC_OPERATOR(strings_to_numbers) {
    int32_t dtype = (int32_t)attributes[2];
    int64_t count = onnxc_elements(in->rank, in->dims), size = onnxc_dtype_bytes(dtype), longest = 0;
    const onnxc_string *strings = in->data;
    if (size > 8 || dtype > ONNXC_BFLOAT16 || dtype == ONNXC_COMPLEX64)
        return onnxc_raise(context, ONNXC_UNSUPPORTED, dtype);
    for (int64_t i = 0; i < count; i++) {
        onnxc_string string = ONNXC_LOAD(onnxc_string, &strings[i]);
        if (string.length > longest) longest = string.length;
    }
    char *results = onnxc_call_output(context, out, attributes[0], dtype, in->rank, in->dims);
    char *text = onnxc_call_scratch(context, longest < INT64_MAX ? longest + 1 : longest, 1);
    if (results == NULL || text == NULL) return context->status;
    locale_t plain = (locale_t)0, before = onnxc_enter_locale(&plain);
    if (before == (locale_t)0) return onnxc_raise(context, ONNXC_OUT_OF_MEMORY, longest);
    int64_t wrong = -1;
    for (int64_t i = 0; i < count && wrong < 0; i++) {
        onnxc_string string = ONNXC_LOAD(onnxc_string, &strings[i]);
        if (string.length > 0) memcpy(text, string.data, (size_t)string.length);
        text[string.length] = 0;
        bool whole = (int64_t)strlen(text) == string.length; /* no zero byte inside */
        if (!whole || !onnxc_read_number(dtype, text, results + size * i)) wrong = i;
    }
    onnxc_leave_locale(before, plain);
    return wrong < 0 ? ONNXC_OK : onnxc_fail_text(context, dtype, text);
}
