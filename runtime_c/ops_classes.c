/* SPDX-License-Identifier: Apache-2.0 */
/* ops_classes.c - what classes a row may belong to. */

/* The probability of each of n classes, of pairwise[i * n + j], that of i where it is i or j, by Wu, Lin and
 * Weng's second method: until nothing changes by more than 0.005 / n, 100 times at most. */
static void onnxc_couple(int64_t n, const float *pairwise, float *q, float *qp, float *p) {
    for (int64_t i = 0; i < n; i++) {
        p[i] = 1.0f / (float)n;
        q[i * n + i] = 0;
        for (int64_t j = 0; j < n; j++) {
            if (i == j) continue;
            q[i * n + i] += pairwise[j * n + i] * pairwise[j * n + i];
            q[i * n + j] = j < i ? q[j * n + i] : -pairwise[j * n + i] * pairwise[i * n + j];
        }
    }
    for (int round = 0; round < 100; round++) {
        float pqp = 0, error = 0;
        for (int64_t i = 0; i < n; i++) {
            qp[i] = 0;
            for (int64_t j = 0; j < n; j++) qp[i] += q[i * n + j] * p[j];
            pqp += p[i] * qp[i];
        }
        for (int64_t i = 0; i < n; i++) error = fmaxf(error, fabsf(qp[i] - pqp));
        if (error < 0.005f / (float)n) return;
        for (int64_t i = 0; i < n; i++) {
            float change = (pqp - qp[i]) / q[i * n + i];
            p[i] += change;
            pqp = (pqp + change * (change * q[i * n + i] + 2 * qp[i])) / (1 + change) / (1 + change);
            for (int64_t j = 0; j < n; j++) {
                qp[j] = (qp[j] + change * q[i * n + j]) / (1 + change);
                p[j] /= 1 + change;
            }
        }
    }
}

/* class_probabilities: [N, P], for each row that of the first of each pair of classes where it is one of the
 * two -> those of all classes [N, C]. Attributes: C. */
ONNXC_OPERATOR(class_probabilities) {
    int64_t n = attributes[1], dims[] = {in->dims[0], n}, pairs = in->dims[1];
    if (!onnxc_same_size(context, n * (n - 1) / 2, pairs)) return context->status;
    float *result = onnxc_call_output(context, out, attributes[0], ONNXC_FLOAT32, 2, dims);
    float *work = onnxc_call_scratch(context, n * (2 * n + 1), sizeof *work);
    if (result == NULL || work == NULL) return context->status;
    float *pairwise = work, *q = work + n * n, *qp = q + n * n;
    for (int64_t row = 0; row < dims[0]; row++) {
        const char *given = (const char *)in->data + (int64_t)sizeof(float) * pairs * row;
        for (int64_t i = 0, k = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++, k++) {
                pairwise[i * n + j] = ONNXC_LOAD(float, given + sizeof(float) * (size_t)k);
                pairwise[j * n + i] = 1 - pairwise[i * n + j];
            }
        onnxc_couple(n, pairwise, q, qp, result + n * row);
    }
    return ONNXC_OK;
}
