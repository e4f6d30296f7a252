/* SPDX-License-Identifier: Apache-2.0 */
/* ops_text.c - text: compared, joined, split, normalised, matched, looked up and counted. Their numpy twins are in
 * onnxc/ir/text_twins.py.
 *
 * Text is UTF-8; bytes that are none come through as they are. What depends on a model's attributes (an automaton, a
 * hash table, how letters change case) is made by the compiler (onnxc/frontend/text_tables.py) and given as
 * constant operands, so that nothing is built while a model loads or runs. */

static onnxc_string onnxc_text_of(const onnxc_value *x, int64_t i) {
    return ONNXC_LOAD(onnxc_string, (const onnxc_string *)x->data + i);
}

/* strings_joined: x, y of one shape -> each text of x with that of y behind it. No attributes. */
ONNXC_OPERATOR(strings_joined) {
    int64_t count = onnxc_elements(in->rank, in->dims), bytes = 0;
    if (!onnxc_same_size(context, count, onnxc_elements(in[1].rank, in[1].dims))) return context->status;
    for (int64_t i = 0; i < 2 * count; i++)
        if (!onnxc_add(bytes, onnxc_text_of(&in[i & 1], i / 2).length + (i & 1), &bytes))
            return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, i);
    onnxc_object *joined = onnxc_new_strings(context, in->rank, in->dims, bytes);
    if (joined == NULL) return context->status;
    onnxc_string *strings = joined->value.data;
    char *to = joined->text;
    for (int64_t i = 0; i < count; i++) {
        strings[i].data = to;
        for (int k = 0; k < 2; k++) {
            onnxc_string part = onnxc_text_of(&in[k], i);
            if (part.length > 0) memcpy(to, part.data, (size_t)part.length);
            to += part.length;
        }
        strings[i].length = to - strings[i].data;
        *to++ = 0;
    }
    return onnxc_call_strings(context, out, attributes[0], joined);
}

/* strings_equal: x, y of one shape -> where their elements are the same bytes. No attributes. */
ONNXC_OPERATOR(strings_equal) {
    int64_t count = onnxc_elements(in->rank, in->dims), size = onnxc_dtype_bytes(ONNXC_STRING);
    const char *x = in[0].data, *y = in[1].data;
    if (!onnxc_same_size(context, count, onnxc_elements(in[1].rank, in[1].dims))) return context->status;
    bool *results = onnxc_call_output(context, out, attributes[0], ONNXC_BOOL, in->rank, in->dims);
    if (results == NULL) return context->status;
    for (int64_t i = 0; i < count; i++)
        results[i] = onnxc_compare_strings(x + size * i, y + size * i) == 0;
    return ONNXC_OK;
}

/* Characters -------------------------------------------------------------------------------------- */

/* The character that a text of at least one byte begins with, -1 where that is no UTF-8; its bytes in *size. */
static int32_t onnxc_character(const char *text, int64_t length, int *size) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    *size = 1;
    if (bytes[0] < 0x80) return bytes[0];
    int count = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc0 || bytes[0] > 0xf7 || count > length) return -1;
    int32_t character = bytes[0] & (0x7f >> count);
    for (int k = 1; k < count; k++) {
        if ((bytes[k] & 0xc0) != 0x80) return -1;
        character = character << 6 | (bytes[k] & 0x3f);
    }
    bool surrogate = character >= 0xd800 && character < 0xe000;
    if (character < least[count] || character > 0x10ffff || surrogate) return -1;
    *size = count;
    return character;
}

/* Writes a character and returns its bytes. */
static int onnxc_put_character(char *to, int32_t character) {
    if (character < 0x80) {
        *to = (char)character;
        return 1;
    }
    int count = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (int k = count - 1; k > 0; k--, character >>= 6) to[k] = (char)(0x80 | (character & 0x3f));
    to[0] = (char)((0xf00 >> count) | character);
    return count;
}

static bool onnxc_is_space(int32_t character) {
    if (character < 0x80) return character == ' ' || (character >= 9 && character <= 13) || (character >= 28 && character <= 31);
    return character == 0x85 || character == 0xa0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200a)
        || character == 0x2028 || character == 0x2029 || character == 0x202f || character == 0x205f
        || character == 0x3000;
}

/* How many bytes of a text come before the first character that is a space, or is none. */
static int64_t onnxc_span(onnxc_string text, bool spaces) {
    int64_t at = 0;
    int size;
    while (at < text.length && (unsigned char)text.data[at] < 0x80
           && onnxc_is_space((unsigned char)text.data[at]) == spaces)
        at++;
    while (at < text.length
           && onnxc_is_space(onnxc_character(text.data + at, text.length - at, &size)) == spaces)
        at += size;
    return at;
}

/* Splitting --------------------------------------------------------------------------------------- */

static onnxc_string onnxc_behind(onnxc_string text, int64_t bytes) {
    return (onnxc_string){text.data + bytes, text.length - bytes};
}

/* The text without the spaces around it. */
static onnxc_string onnxc_stripped(onnxc_string text) {
    while (text.length > 0 && (unsigned char)text.data[text.length - 1] < 0x80
           && onnxc_is_space(text.data[text.length - 1]))
        text.length--;
    if (text.length > 0 && (unsigned char)text.data[text.length - 1] < 0x80)
        return onnxc_behind(text, onnxc_span(text, true));
    onnxc_string rest = text = onnxc_behind(text, onnxc_span(text, true));
    int64_t end = 0;
    while (rest.length > 0) {
        rest = onnxc_behind(rest, onnxc_span(rest, false));
        end = text.length - rest.length;
        rest = onnxc_behind(rest, onnxc_span(rest, true));
    }
    return (onnxc_string){text.data, end};
}

/* Cuts a text at each delimiter, or at spaces where that is empty, at most `most` times (negative: at all of them);
 * returns the number of pieces and writes them to `pieces` unless that is null. */
static int64_t onnxc_split(onnxc_string text, onnxc_string delimiter, int64_t most, onnxc_string *pieces) {
    int64_t count = 0;
    bool spaces = delimiter.length == 0;
    if (spaces) text = onnxc_stripped(text);
    if (spaces && text.length == 0) return 0;
    for (;; count++) {
        int64_t length = text.length;
        const char *found = NULL;
        if (count != most && spaces) {
            length = onnxc_span(text, false);
            found = length < text.length ? text.data + length : NULL;
        } else if (count != most && text.length > 0) {
            found = memmem(text.data, (size_t)text.length, delimiter.data, (size_t)delimiter.length);
            if (found != NULL) length = found - text.data;
        }
        if (pieces != NULL) pieces[count] = (onnxc_string){text.data, length};
        if (found == NULL) return count + 1;
        text = onnxc_behind(text, length);
        text = onnxc_behind(text, spaces ? onnxc_span(text, true) : delimiter.length);
    }
}

/* split_strings: x [...], delimiter -> the pieces of each text [..., most pieces], padded with empty texts; their
 * numbers int64 [...]. Attributes: at most how many cuts, negative for any number. */
ONNXC_OPERATOR(split_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), most = 0, dims[ONNXC_MAX_RANK + 1];
    onnxc_string delimiter = onnxc_text_of(&in[1], 0);
    int64_t *numbers = onnxc_call_output(context, &out[1], attributes[1], ONNXC_INT64, in->rank, in->dims);
    if (numbers == NULL) return context->status;
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = onnxc_split(onnxc_text_of(in, i), delimiter, attributes[2], NULL);
        if (numbers[i] > most) most = numbers[i];
    }
    for (int32_t a = 0; a < in->rank; a++) dims[a] = in->dims[a];
    dims[in->rank] = most;
    onnxc_object *pieces = onnxc_new_strings(context, in->rank + 1, dims, 0);
    if (pieces == NULL) return context->status;
    onnxc_string *strings = pieces->value.data;
    for (int64_t i = 0; i < count; i++)
        onnxc_split(onnxc_text_of(in, i), delimiter, attributes[2], strings + most * i);
    return onnxc_call_strings(context, out, attributes[0], pieces);
}

/* Case -------------------------------------------------------------------------------------------- */

/* The character in the other case, by a table of rows {first, last, step, what is added}, sorted. */
static int32_t onnxc_changed(const onnxc_value *table, int32_t character) {
    const int32_t *rows = table->data;
    int64_t low = 0, high = table->dims[0];
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (rows[4 * middle + 1] < character) low = middle + 1;
        else high = middle;
    }
    const int32_t *row = rows + 4 * low;
    bool inside = low < table->dims[0] && character >= row[0] && (character - row[0]) % row[2] == 0;
    return inside ? character + row[3] : character;
}

/* Writes the text with every character changed to `to`, which has room for twice its bytes; the bytes written. */
static int64_t onnxc_change(onnxc_string text, const onnxc_value *table, char *to) {
    const char *begin = to;
    if (table->dims[0] == 0) {
        if (text.length > 0) memcpy(to, text.data, (size_t)text.length);
        return text.length;
    }
    for (int size; text.length > 0; text = onnxc_behind(text, size)) {
        unsigned char first = (unsigned char)*text.data;
        if (first < 0x80 && !(first >= 'A' && first <= 'Z') && !(first >= 'a' && first <= 'z')) {
            *to++ = *text.data; /* such a character has no case */
            size = 1;
            continue;
        }
        int32_t character = onnxc_character(text.data, text.length, &size);
        if (character < 0) *to++ = *text.data;
        else to += onnxc_put_character(to, onnxc_changed(table, character));
    }
    return to - begin;
}

/* Whether a text is among sorted ones. */
static bool onnxc_is_among(onnxc_string text, const onnxc_value *sorted) {
    int64_t low = 0, high = sorted->dims[0];
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = onnxc_compare_strings((const char *)((const onnxc_string *)sorted->data + middle), (const char *)&text);
        if (order == 0) return true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

/* normalize_strings: x [n] or [1, n], words left out (sorted), two case tables [rows, 4] -> the texts that the first
 * table does not make one of the words, changed by the second; one empty text where there are none. No
 * attributes. */
ONNXC_OPERATOR(normalize_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), longest = 0, bytes = 0, room, dims[2] = {1, 1}, kept = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = onnxc_text_of(in, i).length;
        if (length > longest) longest = length;
        if (!onnxc_add(bytes, length, &bytes)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, i);
    }
    if (!onnxc_multiply(bytes, 2, &room)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, bytes);
    char *text = onnxc_call_scratch(context, longest, 2), *changed = onnxc_call_scratch(context, room, 1);
    onnxc_string *strings = onnxc_call_scratch(context, count, sizeof *strings);
    if (text == NULL || changed == NULL || strings == NULL) return context->status;
    for (int64_t i = 0; i < count; i++) {
        onnxc_string x = onnxc_text_of(in, i), compared = {text, onnxc_change(x, &in[2], text)};
        if (onnxc_is_among(compared, &in[1])) continue;
        strings[kept].data = changed;
        strings[kept].length = onnxc_change(x, &in[3], changed);
        changed += strings[kept++].length;
    }
    dims[in->rank - 1] = kept > 0 ? kept : 1;
    onnxc_object *tensor = onnxc_new_strings(context, in->rank, dims, 0);
    if (tensor != NULL && kept > 0) memcpy(tensor->value.data, strings, sizeof *strings * (size_t)kept);
    return onnxc_call_strings(context, out, attributes[0], tensor);
}

/* Matching ---------------------------------------------------------------------------------------- */

/* match_strings: x, class of each byte uint8 [256], next state of each state and class int32 [states, classes],
 * where a match may end uint8 [states] (bit 0) -> whether the automaton takes the whole of each text, beginning
 * in state 1. State 0 leads nowhere. No attributes. */
ONNXC_OPERATOR(match_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), classes = in[2].dims[1];
    const uint8_t *class_of = in[1].data, *final = in[3].data;
    const int32_t *next = in[2].data;
    bool *results = onnxc_call_output(context, out, attributes[0], ONNXC_BOOL, in->rank, in->dims);
    if (results == NULL) return context->status;
    for (int64_t i = 0; i < count; i++) {
        onnxc_string x = onnxc_text_of(in, i);
        const unsigned char *bytes = (const unsigned char *)x.data;
        int64_t state = 1;
        for (int64_t k = 0; k < x.length && state != 0; k++) state = next[state * classes + class_of[bytes[k]]];
        results[i] = final[state] & 1;
    }
    return ONNXC_OK;
}

/* What is beside a place in a text: 0 its end, 1 a newline, 2 a byte of a word, 3 another (automaton.py). */
static int onnxc_beside(onnxc_string text, int64_t at) {
    if (at < 0 || at >= text.length) return 0;
    unsigned char c = (unsigned char)text.data[at];
    if (c == '\n') return 1;
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ? 2 : 3;
}

/* Finds the first match of an automaton (four tables) from *begin on, the longest there; its end, or -1. */
static int64_t onnxc_search(onnxc_string text, const onnxc_value *tables, int64_t *begin) {
    const uint8_t *class_of = tables[0].data, *final = tables[2].data;
    const int32_t *next = tables[1].data, *starts = tables[3].data;
    int64_t classes = tables[1].dims[1];
    for (int64_t at = *begin; at <= text.length; at++) {
        int64_t state = starts[onnxc_beside(text, at - 1)], end = -1;
        for (int64_t k = at;; k++) {
            if (final[state] != 0 && (final[state] >> onnxc_beside(text, k) & 1)) end = k;
            if (k == text.length) break;
            state = next[state * classes + class_of[(unsigned char)text.data[k]]];
            if (state == 0) break;
        }
        if (end >= 0) {
            *begin = at;
            return end;
        }
    }
    return -1;
}

/* How many characters a text has; bytes that are no UTF-8 are one each. */
static int64_t onnxc_characters(onnxc_string text) {
    int64_t count = 0;
    for (int size; text.length > 0; text = onnxc_behind(text, size), count++)
        onnxc_character(text.data, text.length, &size);
    return count;
}

typedef struct onnxc_tokens {
    onnxc_string *to; /* null: they are only counted */
    int64_t count, least;
} onnxc_tokens;

static void onnxc_token(onnxc_tokens *tokens, onnxc_string text) {
    if (text.length <= 0 || onnxc_characters(text) < tokens->least) return;
    if (tokens->to != NULL) tokens->to[tokens->count] = text;
    tokens->count++;
}

/* The tokens of a text: its characters (mode 2), the matches of an automaton (1), or what is left between the
 * matches of the first of `automata`, cut again by the others (0); an empty match takes the character behind it. */
static void onnxc_tokenize(onnxc_tokens *tokens, onnxc_string text, const onnxc_value *tables, int64_t automata,
                           int64_t mode) {
    if (mode == 0 && automata == 0) {
        onnxc_token(tokens, text);
        return;
    }
    if (mode == 0 && onnxc_characters(text) < tokens->least) return;
    int64_t at = 0, begin = 0;
    for (int size; mode == 2 && at < text.length; at += size) {
        onnxc_character(text.data + at, text.length - at, &size);
        onnxc_token(tokens, (onnxc_string){text.data + at, size});
    }
    while (mode != 2) {
        int64_t end = onnxc_search(text, tables, &begin);
        int size = 1;
        if (mode == 1 && end >= 0) onnxc_token(tokens, (onnxc_string){text.data + begin, end - begin});
        if (mode == 0)
            onnxc_tokenize(tokens, (onnxc_string){text.data + at, (end < 0 ? text.length : begin) - at}, tables + 4,
                           automata - 1, 0);
        if (end < 0) return;
        if (begin < text.length) onnxc_character(text.data + begin, text.length - begin, &size);
        at = begin = end > begin ? end : begin + size;
    }
}

/* tokenize_strings: x [...], what pads [1], automata of four tables each -> the tokens of each text along a new
 * axis, padded. Attributes: 1 where each text is put between marks, characters that a token has at least, the
 * mode of onnxc_tokenize. */
ONNXC_OPERATOR(tokenize_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), most = 0, dims[ONNXC_MAX_RANK + 1];
    int64_t mark = attributes[1], least = attributes[2], mode = attributes[3], automata = (in_count - 2) / 4;
    for (int64_t i = 0; i < count; i++) {
        onnxc_tokens tokens = {NULL, 0, least};
        onnxc_tokenize(&tokens, onnxc_text_of(in, i), in + 2, automata, mode);
        if (tokens.count > most) most = tokens.count;
    }
    if (most > 0) most += 2 * mark;
    for (int32_t a = 0; a < in->rank; a++) dims[a] = in->dims[a];
    dims[in->rank] = most;
    onnxc_object *made = onnxc_new_strings(context, in->rank + 1, dims, 0);
    if (made == NULL) return context->status;
    for (int64_t i = 0; i < count && most > 0; i++) {
        onnxc_string *row = (onnxc_string *)made->value.data + most * i;
        onnxc_tokens tokens = {row + mark, 0, least};
        onnxc_tokenize(&tokens, onnxc_text_of(in, i), in + 2, automata, mode);
        if (mark) row[0] = (onnxc_string){"\x02", 1};
        if (mark) row[++tokens.count] = (onnxc_string){"\x03", 1}, tokens.count++;
        for (int64_t k = tokens.count; k < most; k++) row[k] = onnxc_text_of(&in[1], 0);
    }
    return onnxc_call_strings(context, out, attributes[0], made);
}

/* Looking up -------------------------------------------------------------------------------------- */

/* Where a hash begins to look in a table of 2^n slots; text_tables.py stores by the same rule. */
static uint64_t onnxc_slot_of(uint64_t hash, int64_t slots) {
    return (hash * 0x9e3779b97f4a7c15u) >> 32 & (uint64_t)(slots - 1);
}

/* The place of a key among the keys of a hash table, -1 where it is none of them. */
static int64_t onnxc_find_integer(const onnxc_value *keys, const onnxc_value *slots, int64_t key) {
    const int64_t *known = keys->data;
    const int32_t *places = slots->data;
    uint64_t last = (uint64_t)slots->dims[0] - 1, at = onnxc_slot_of((uint64_t)key, slots->dims[0]);
    while (places[at] >= 0 && known[places[at]] != key) at = (at + 1) & last;
    return places[at];
}

/* find_integers: x, keys int64 [n], hash table int32 [2^m] -> the place of each element among the keys, or -1,
 * int64. No attributes. */
ONNXC_OPERATOR(find_integers) {
    int64_t count = onnxc_elements(in->rank, in->dims), size = onnxc_dtype_bytes(in->dtype);
    int64_t *places = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, in->rank, in->dims);
    if (places == NULL) return context->status;
    for (int64_t i = 0; i < count; i++)
        places[i] = onnxc_find_integer(&in[1], &in[2], onnxc_to_integer(in->dtype, (const char *)in->data + size * i));
    return ONNXC_OK;
}

/* find_strings: x, keys [n], hash table int32 [2^m] -> the place of each text among the keys, or -1, int64. No
 * attributes. */
ONNXC_OPERATOR(find_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims), slots = in[2].dims[0];
    const onnxc_string *keys = in[1].data;
    const int32_t *table = in[2].data;
    int64_t *places = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, in->rank, in->dims);
    if (places == NULL) return context->status;
    for (int64_t i = 0; i < count; i++) {
        onnxc_string x = onnxc_text_of(in, i);
        uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
        for (int64_t k = 0; k < x.length; k++) hash = (hash ^ (unsigned char)x.data[k]) * 0x100000001b3u;
        uint64_t at = onnxc_slot_of(hash, slots);
        while (table[at] >= 0 && onnxc_compare_strings((const char *)&keys[table[at]], (const char *)&x) != 0)
            at = (at + 1) & (uint64_t)(slots - 1);
        places[i] = table[at];
    }
    return ONNXC_OK;
}

/* Counting ---------------------------------------------------------------------------------------- */

/* What count_ngrams knows of its operands. */
typedef struct onnxc_ngrams {
    const onnxc_value *keys, *slots;
    const int32_t *columns;
    const float *weights;
    int64_t vocabulary, shortest, longest;
    bool adds;
} onnxc_ngrams;

/* Counts the n-grams that begin with the first of `count` tokens, each `step` tokens behind the one before. */
static void onnxc_count_from(const onnxc_ngrams *n, const int64_t *tokens, int64_t count, int64_t step,
                             int64_t shortest, float *row) {
    int64_t node = 0;
    for (int64_t length = 1, at = 0; length <= n->longest && at < count; length++, at += step) {
        if (tokens[at] < 0) return;
        int64_t edge = onnxc_find_integer(n->keys, n->slots, node * n->vocabulary + tokens[at]);
        if (edge < 0) return;
        node = edge + 1;
        int32_t column = n->columns[node];
        if (column < 0 || length < shortest) continue;
        row[column] = n->adds ? row[column] + n->weights[node] : n->weights[node];
    }
}

/* count_ngrams: tokens int64 [n] or [rows, n] (negative: unknown), edges of a tree of n-grams int64 [e] (node *
 * vocabulary + token, edge k leads to node k + 1) and their hash table int32 [2^m], column of each node int32 [e + 1]
 * (or -1), its weight float32 [e + 1] -> float32 [columns] or [rows, columns]. Attributes: columns, vocabulary, shortest
 * and longest n-gram, most tokens skipped between two, 1 where weights add up with each n-gram found. */
ONNXC_OPERATOR(count_ngrams) {
    int64_t columns = attributes[1], rows = in->rank > 1 ? in->dims[0] : 1, count = in->dims[in->rank - 1];
    int64_t dims[2] = {rows, columns};
    onnxc_ngrams n = {&in[1], &in[2], in[3].data, in[4].data, attributes[2], attributes[3], attributes[4],
                      attributes[6] != 0};
    float *results = onnxc_call_output(context, out, attributes[0], ONNXC_FLOAT32, in->rank, dims + 2 - in->rank);
    if (results == NULL) return context->status;
    if (out->bytes > 0) memset(results, 0, out->bytes);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t *tokens = (const int64_t *)in->data + count * r;
        int64_t shortest = n.shortest; /* single tokens have nothing between them: they count once */
        for (int64_t step = 1; step <= attributes[5] + 1 && step <= count; step++) {
            for (int64_t first = 0; first < count; first++)
                onnxc_count_from(&n, tokens + first, count - first, step, shortest, results + columns * r);
            if (shortest == 1 && ++shortest > n.longest) break;
        }
    }
    return ONNXC_OK;
}

static uint32_t onnxc_rotated(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* MurmurHash3, of 32 bits, by Austin Appleby, which is in the public domain. */
static uint32_t onnxc_murmur(const uint8_t *data, int64_t size, uint32_t seed) {
    uint32_t hash = seed, word = 0;
    int64_t whole = size & ~(int64_t)3;
    for (int64_t at = 0; at < size; at++) {
        word |= (uint32_t)data[at] << 8 * (at & 3);
        if ((at & 3) < 3 && at + 1 < size) continue;
        hash ^= onnxc_rotated(word * 0xcc9e2d51, 15) * 0x1b873593;
        if (at < whole) hash = onnxc_rotated(hash, 13) * 5 + 0xe6546b64;
        word = 0;
    }
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

/* hash_strings: x -> uint32, the hash of each text. Attributes: the seed. */
ONNXC_OPERATOR(hash_strings) {
    int64_t count = onnxc_elements(in->rank, in->dims);
    uint32_t *hashes = onnxc_call_output(context, out, attributes[0], ONNXC_UINT32, in->rank, in->dims);
    if (hashes == NULL) return context->status;
    for (int64_t i = 0; i < count; i++) {
        onnxc_string text = onnxc_text_of(in, i);
        hashes[i] = onnxc_murmur((const uint8_t *)text.data, text.length, (uint32_t)attributes[1]);
    }
    return ONNXC_OK;
}
