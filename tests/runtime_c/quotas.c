/* Prints what runtime_c/quota.c finds below ONNXC_ROOT: processors, or "none". */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quota.c"

int main(void) {
    int32_t quota = onnxc_quota();
    if (quota == ONNXC_NO_QUOTA) puts("none");
    else printf("%d\n", quota);
    return 0;
}
