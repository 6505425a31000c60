/* embed.c: a build-time tool that writes files as C strings, in an array of EmbeddedText.
 * Usage: embed OUT.c ARRAY NAME=FILE… */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!out) return 2;
    fputs("#include \"codegen/embed.h\"\n\n", out);
    for (int i = 3; i < argc; i++) {
        char *file = strchr(argv[i], '=');
        FILE *in = file ? fopen(file + 1, "r") : NULL;
        if (!in) {
            fprintf(stderr, "embed: cannot read %s\n", argv[i]);
            return 1;
        }
        *file = 0;
        fprintf(out, "static const char text%d[] =\n    \"", i);
        for (int c; (c = fgetc(in)) != EOF;) {
            if (c == '\n')
                fputs("\\n\"\n    \"", out);
            else if (c == '"' || c == '\\')
                fprintf(out, "\\%c", c);
            else if (c < 32 || c > 126)
                fprintf(out, "\\%03o", (unsigned)c);
            else
                fputc(c, out);
        }
        fputs("\";\n\n", out);
        fclose(in);
    }
    fprintf(out, "extern const EmbeddedText %s[];\nconst EmbeddedText %s[] = {\n", argv[2],
            argv[2]);
    for (int i = 3; i < argc; i++) fprintf(out, "    {\"%s\", text%d},\n", argv[i], i);
    fputs("    {0, 0},\n};\n", out);
    return fclose(out) != 0;
}
