/* cmd_ops.c: braid ops: lists the supported operators. */
#include "cli/cli.h"
#include "frontend/ops.h"

static void arity(char text[24], int min, int max) {
    if (max < 0)
        snprintf(text, 24, "%d+", min);
    else if (min == max)
        snprintf(text, 24, "%d", min);
    else
        snprintf(text, 24, "%d-%d", min, max);
}

int cmd_ops(const Cli *c) {
    char in[24], out[24];
    int name = 8, types = 5;
    (void)c;
    for (int i = 0; i < op_count(); i++) {
        int n = (int)strlen(op_at(i)->name), t = (int)strlen(op_types_text(op_at(i)));
        if (n > name) name = n;
        if (t > types) types = t;
    }
    printf("%-*s  %-10s  %5s  %-6s  %-7s  %-*s  %s\n", name, "operator", "domain", "since",
           "inputs", "outputs", types, "types", "meaning");
    for (int i = 0; i < op_count(); i++) {
        const OpRow *o = op_at(i);
        arity(in, o->nin_min, o->nin_max);
        arity(out, o->nout_min, o->nout_max);
        printf("%-*s  %-10s  %5d  %-6s  %-7s  %-*s  %s\n", name, o->name,
               *o->domain ? o->domain : "ai.onnx", o->since, in, out, types, op_types_text(o),
               o->doc);
    }
    printf(
        "\ntypes: one letter for each input (the last one repeats): b bool, l int64, i int32 or\n"
        "int64, f float32, * any type, S sequence, O optional. Other capitals are type variables:\n"
        "one type for all inputs with that letter. After ':' are its types, else num and bool:\n"
        "num flt and int; flt floats of 16 bits and more; int integers of 8 bits and more; all\n"
        "every type; f8 float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz; exp float8e8m0;\n"
        "low those of f8, float6e2m3, float6e3m2, float4e2m1, int4, uint4, int2, uint2.\n"
        "limits: %d axes; no string or complex elements\n",
        MAX_RANK);
    return EXIT_DONE;
}
