/* data.h: what a kernel of these tests works on, all in device memory; shared with run.c. */
#ifndef DATA_H
#define DATA_H
enum { DATA_WORDS = 1024 };
typedef struct Data {
    unsigned *flag;      /* DATA_WORDS words, 0 */
    int *in;             /* DATA_WORDS words, each its index */
    int *out;            /* DATA_WORDS words, 0 */
    int *raw;            /* DATA_WORDS words that nothing has written */
    unsigned char *byte; /* DATA_WORDS bytes, 0 */
} Data;
#endif
