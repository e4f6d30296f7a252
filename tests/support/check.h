/* CHECK for programs that test the runtime, in C and C++: ends the program where a condition does not hold. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(1);                                                \
        }                                                           \
    } while (0)
