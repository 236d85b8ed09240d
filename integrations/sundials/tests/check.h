/* What the tests of the SUNLinearSolver share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sundials/sundials_version.h>

#include "sunlinsol_sparsebatch.h"

#if SUNDIALS_VERSION_MAJOR >= 7
#define NULL_ARGUMENT SUN_ERR_ARG_CORRUPT
#define WRONG_ARGUMENT SUN_ERR_ARG_INCOMPATIBLE
#define NO_COMMUNICATOR SUN_COMM_NULL
#else
#define NULL_ARGUMENT SUNLS_MEM_NULL
#define WRONG_ARGUMENT SUNLS_ILL_INPUT
#define NO_COMMUNICATOR NULL
#endif

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The call gives this code, and the message of `S` has this text. */
#define REFUSED(call, S, code, text)                                                               \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        if (strstr(SUNLinSol_SparseBatch_GetMessage(S), text) == NULL) {                           \
            fprintf(stderr, "%s:%d: expected \"%s\" in \"%s\"\n", __FILE__, __LINE__, text,        \
                    SUNLinSol_SparseBatch_GetMessage(S));                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
