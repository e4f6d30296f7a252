/* SPDX-License-Identifier: Apache-2.0 */
/* ops_elements.c - single elements of any type: their value, their order, whether they are zero.
 *
 * What operators written in C share. Small floats are decoded from their fields. */

/* A float of `exponent_bits` and `mantissa_bits` below a sign bit: its value if it is finite. */
static double onnxc_decode_float(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    int sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

/* The same of a format whose highest exponent means infinity and NaN. */
static double onnxc_decode_ieee(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
    uint32_t top = ((1u << exponent_bits) - 1) << mantissa_bits;
    if ((bits & top) != top) return onnxc_decode_float(bits, exponent_bits, mantissa_bits, bias);
    if (bits & ((1u << mantissa_bits) - 1)) return NAN;
    return bits >> (mantissa_bits + exponent_bits) & 1 ? -INFINITY : INFINITY;
}

static double onnxc_decode_byte(int32_t dtype, uint8_t bits) {
    switch (dtype) {
    case ONNXC_FLOAT8E4M3FN: return (bits & 0x7f) == 0x7f ? NAN : onnxc_decode_float(bits, 4, 3, 7);
    case ONNXC_FLOAT8E4M3FNUZ: return bits == 0x80 ? NAN : onnxc_decode_float(bits, 4, 3, 8);
    case ONNXC_FLOAT8E5M2: return onnxc_decode_ieee(bits, 5, 2, 15);
    case ONNXC_FLOAT8E5M2FNUZ: return bits == 0x80 ? NAN : onnxc_decode_float(bits, 5, 2, 16);
    case ONNXC_FLOAT8E8M0: return bits == 0xff ? NAN : ldexp(1, bits - 127);
    case ONNXC_FLOAT6E2M3: return onnxc_decode_float(bits & 63, 2, 3, 1);
    case ONNXC_FLOAT6E3M2: return onnxc_decode_float(bits & 63, 3, 2, 3);
    case ONNXC_FLOAT4E2M1: return onnxc_decode_float(bits & 15, 2, 1, 1);
    case ONNXC_INT4: return (bits & 15) - (bits & 8 ? 16 : 0);
    case ONNXC_INT2: return (bits & 3) - (bits & 2 ? 4 : 0);
    case ONNXC_INT8: return (int8_t)bits;
    default: return bits;
    }
}

#define ONNXC_LOAD(type, address) __extension__({ type loaded; memcpy(&loaded, address, sizeof loaded); loaded; })

/* The value of a real element; 64-bit integers are rounded. */
static double onnxc_to_double(int32_t dtype, const char *element) {
    switch (dtype) {
    case ONNXC_FLOAT32: return ONNXC_LOAD(float, element);
    case ONNXC_FLOAT64: return ONNXC_LOAD(double, element);
    case ONNXC_FLOAT16: return onnxc_decode_ieee(ONNXC_LOAD(uint16_t, element), 5, 10, 15);
    case ONNXC_BFLOAT16: return onnxc_decode_ieee(ONNXC_LOAD(uint16_t, element), 8, 7, 127);
    case ONNXC_INT16: return ONNXC_LOAD(int16_t, element);
    case ONNXC_UINT16: return ONNXC_LOAD(uint16_t, element);
    case ONNXC_INT32: return ONNXC_LOAD(int32_t, element);
    case ONNXC_UINT32: return ONNXC_LOAD(uint32_t, element);
    case ONNXC_INT64: return (double)ONNXC_LOAD(int64_t, element);
    case ONNXC_UINT64: return (double)ONNXC_LOAD(uint64_t, element);
    default: return onnxc_decode_byte(dtype, *(const uint8_t *)element);
    }
}

/* Fields of the 16-bit float nearest to `value`, ties to even. */
static uint16_t onnxc_encode_half(double value, int exponent_bits, int mantissa_bits, int bias) {
    int top = (1 << exponent_bits) - 1;
    uint32_t sign = signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
    if (isnan(value)) return (uint16_t)(sign | (uint32_t)top << mantissa_bits | 1u << (mantissa_bits - 1));
    int exponent;
    double magnitude = fabs(value);
    if (isinf(value)) return (uint16_t)(sign | (uint32_t)top << mantissa_bits);
    frexp(magnitude, &exponent); /* magnitude < 2^exponent */
    int lowest = exponent - 1 + bias < 1 ? 1 - bias : exponent - 1; /* of the unit's power */
    double units = nearbyint(ldexp(magnitude, mantissa_bits - lowest)); /* a carry moves the exponent */
    uint64_t bits = magnitude == 0 ? 0 : (uint64_t)units + ((uint64_t)(lowest + bias - 1) << mantissa_bits);
    uint64_t infinity = (uint64_t)top << mantissa_bits;
    return (uint16_t)(sign | (uint32_t)(bits < infinity ? bits : infinity));
}

/* Writes a float of any of the four common types. */
static void onnxc_from_double(int32_t dtype, double value, char *element) {
    float single = (float)value;
    uint16_t half;
    switch (dtype) {
    case ONNXC_FLOAT64: memcpy(element, &value, sizeof value); break;
    case ONNXC_FLOAT32: memcpy(element, &single, sizeof single); break;
    default:
        half = dtype == ONNXC_FLOAT16 ? onnxc_encode_half(value, 5, 10, 15)
                                      : onnxc_encode_half(value, 8, 7, 127);
        memcpy(element, &half, sizeof half);
    }
}

/* An element of an int32 or int64 tensor. */
static int64_t onnxc_to_integer(int32_t dtype, const char *element) {
    return dtype == ONNXC_INT32 ? ONNXC_LOAD(int32_t, element) : ONNXC_LOAD(int64_t, element);
}

/* Element k of such a tensor. */
static int64_t onnxc_integer_at(const onnxc_value *tensor, int64_t k) {
    return onnxc_to_integer(tensor->dtype,
                            (const char *)tensor->data + onnxc_dtype_bytes(tensor->dtype) * k);
}

static int onnxc_compare_strings(const char *a, const char *b) {
    onnxc_string x = ONNXC_LOAD(onnxc_string, a), y = ONNXC_LOAD(onnxc_string, b);
    int64_t common = x.length < y.length ? x.length : y.length;
    int order = common > 0 ? memcmp(x.data, y.data, (size_t)common) : 0;
    return order != 0 ? order : (x.length > y.length) - (x.length < y.length);
}

/* The order of two elements: negative, 0 or positive. NaNs are equal and come last; complex numbers go
 * by real, then imaginary part, strings by bytes. */
static int onnxc_compare(int32_t dtype, const char *a, const char *b) {
    if (dtype == ONNXC_INT64) {
        int64_t x = ONNXC_LOAD(int64_t, a), y = ONNXC_LOAD(int64_t, b);
        return (x > y) - (x < y);
    }
    if (dtype == ONNXC_UINT64) {
        uint64_t x = ONNXC_LOAD(uint64_t, a), y = ONNXC_LOAD(uint64_t, b);
        return (x > y) - (x < y);
    }
    if (dtype == ONNXC_STRING) return onnxc_compare_strings(a, b);
    if (dtype == ONNXC_COMPLEX64 || dtype == ONNXC_COMPLEX128) {
        int32_t part = dtype == ONNXC_COMPLEX64 ? ONNXC_FLOAT32 : ONNXC_FLOAT64;
        int order = onnxc_compare(part, a, b);
        int64_t size = onnxc_dtype_bytes(part);
        return order != 0 ? order : onnxc_compare(part, a + size, b + size);
    }
    double x = onnxc_to_double(dtype, a), y = onnxc_to_double(dtype, b);
    if (isnan(x) || isnan(y)) return !!isnan(x) - !!isnan(y);
    return (x > y) - (x < y);
}

/* Whether an element is, or has, a NaN. */
static bool onnxc_is_nan(int32_t dtype, const char *element) {
    if (dtype == ONNXC_STRING) return false;
    if (dtype == ONNXC_COMPLEX64)
        return isnan(ONNXC_LOAD(float, element)) || isnan(ONNXC_LOAD(float, element + 4));
    if (dtype == ONNXC_COMPLEX128)
        return isnan(ONNXC_LOAD(double, element)) || isnan(ONNXC_LOAD(double, element + 8));
    return isnan(onnxc_to_double(dtype, element));
}

/* The bits of an element that are not all 0 when it is not zero: a float's but for its sign. */
static uint64_t onnxc_value_bits(int32_t dtype) {
    switch (dtype) {
    case ONNXC_FLOAT64: case ONNXC_COMPLEX128: return UINT64_MAX >> 1;
    case ONNXC_FLOAT32: return UINT32_MAX >> 1;
    case ONNXC_COMPLEX64: return 0x7fffffff7fffffffu;
    case ONNXC_FLOAT16: case ONNXC_BFLOAT16: return UINT16_MAX >> 1;
    case ONNXC_FLOAT8E4M3FN: case ONNXC_FLOAT8E5M2: return 0x7f;
    case ONNXC_FLOAT6E2M3: case ONNXC_FLOAT6E3M2: return 31;
    case ONNXC_FLOAT4E2M1: return 7;
    case ONNXC_INT4: case ONNXC_UINT4: return 15;
    case ONNXC_INT2: case ONNXC_UINT2: return 3;
    default: return UINT64_MAX;
    }
}

ONNXC_HERE bool onnxc_is_nonzero(int32_t dtype, uint64_t mask, const char *element) {
    switch (onnxc_dtype_bytes(dtype)) {
    case 1: return dtype == ONNXC_FLOAT8E8M0 || (*(const uint8_t *)element & mask) != 0;
    case 2: return (ONNXC_LOAD(uint16_t, element) & mask) != 0;
    case 4: return (ONNXC_LOAD(uint32_t, element) & mask) != 0;
    case 8: return (ONNXC_LOAD(uint64_t, element) & mask) != 0;
    default:
        if (dtype == ONNXC_STRING) return ONNXC_LOAD(onnxc_string, element).length != 0;
        return (ONNXC_LOAD(uint64_t, element) & mask) != 0
            || (ONNXC_LOAD(uint64_t, element + 8) & mask) != 0;
    }
}
