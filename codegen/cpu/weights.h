/* Weights: included by the assembler from BK_WEIGHTS_FILE. */
__asm__(".pushsection .rodata,\"a\"\n"
        ".balign 64\n"
        "bk_weights:\n"
        ".incbin \"" BK_WEIGHTS_FILE "\"\n"
        ".popsection\n");
extern const unsigned char bk_weights[] __attribute__((visibility("hidden")));
