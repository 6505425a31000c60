/* torch.c: what text/torch.inc needs to know to make the library an operator of PyTorch: the
 * operator's signature, and the shapes of its outputs as Python expressions. */
#include "codegen/embed.h"
#include "codegen/emit/emit.h"

#include <ctype.h>

/* ---- the signature --------------------------------------------------------------------------- */
static bool is_reserved(const char *s) {
    static const char *const word[] = {
        "False",   "None",   "True",     "and",      "as",   "assert", "async", "await",
        "break",   "class",  "continue", "def",      "del",  "elif",   "else",  "except",
        "finally", "for",    "from",     "global",   "if",   "import", "in",    "inf",
        "is",      "lambda", "nan",      "nonlocal", "not",  "or",     "pass",  "raise",
        "return",  "self",   "try",      "while",    "with", "yield"};
    for (size_t i = 0; i < COUNT(word); i++)
        if (strcmp(s, word[i]) == 0) return true;
    return false;
}

/* The names of the arguments: identifiers that differ, as near to the inputs' names as they can. */
static const char **argument_names(Emit *em) {
    const Program *p = em->p;
    const char **name = NEWN(em->a, const char *, p->nin);
    Map *taken = map_new(em->a);
    for (int i = 0; i < p->nin; i++) {
        char *s = arena_strdup(em->a, p->in[i].name);
        for (char *c = s; *c; c++)
            if (!isalnum((unsigned char)*c) || (unsigned char)*c > 126) *c = '_';
        if (!isalpha((unsigned char)*s) || is_reserved(s)) s = arena_printf(em->a, "x_%s", s);
        const char *stem = s;
        for (int k = 2; map_get(taken, s); k++) s = arena_printf(em->a, "%s_%d", stem, k);
        map_set(taken, s, s);
        name[i] = s;
    }
    return name;
}

static bool is_list(const Io *io) { return io->kind == VT_SEQUENCE || io->opt_seq; }

static const char *io_type(const Io *io) {
    if (io->kind == VT_OPTIONAL) return io->opt_seq ? "Tensor[]?" : "Tensor?";
    return io->kind == VT_SEQUENCE ? "Tensor[]" : "Tensor";
}

static const char *schema(Emit *em, const char *operator_name) {
    const Program *p = em->p;
    const char **name = argument_names(em);
    Sb s = {.a = em->a};
    int required = p->nin; /* what follows the last required argument may be left out */
    while (required > 0 && p->in[required - 1].kind == VT_OPTIONAL) required--;
    sb_printf(&s, "%s(", operator_name);
    for (int i = 0; i < p->nin; i++)
        sb_printf(&s, "%s%s %s%s", i ? ", " : "", io_type(&p->in[i]), name[i],
                  i >= required ? "=None" : "");
    sb_puts(&s, p->nout == 1 ? ") -> " : ") -> (");
    for (int i = 0; i < p->nout; i++) sb_printf(&s, "%s%s", i ? ", " : "", io_type(&p->out[i]));
    if (p->nout != 1) sb_puts(&s, ")");
    return s.p;
}

/* ---- shapes in Python ------------------------------------------------------------------------ */
/* PyTorch's name of a type; NULL: it has no tensors of it, one element in a byte. */
static const char *torch_type(DType t) {
    switch (t) {
    case DT_F32: return "float32";
    case DT_U8: return "uint8";
    case DT_I8: return "int8";
    case DT_U16: return "uint16";
    case DT_I16: return "int16";
    case DT_I32: return "int32";
    case DT_I64: return "int64";
    case DT_BOOL: return "bool";
    case DT_F16: return "float16";
    case DT_F64: return "float64";
    case DT_U32: return "uint32";
    case DT_U64: return "uint64";
    case DT_BF16: return "bfloat16";
    case DT_F8E4M3FN: return "float8_e4m3fn";
    case DT_F8E4M3FNUZ: return "float8_e4m3fnuz";
    case DT_F8E5M2: return "float8_e5m2";
    case DT_F8E5M2FNUZ: return "float8_e5m2fnuz";
    case DT_F8E8M0: return "float8_e8m0fnu";
    default: return NULL;
    }
}

typedef struct TorchSizes {
    Emit *em;
    Map *symbol; /* id + 1 of a symbol -> its text */
    Sb *lines;   /* statements before the result */
    int n, depth;
} TorchSizes;

static const char *size_text(TorchSizes *z, Expr *e);

/* The value of the symbol: an expression, or a size that only the run knows. NULL: there is none.
 */
static const char *symbol_text(TorchSizes *z, const Sym *s) {
    const Program *p = z->em->p;
    const char *known = map_geti(z->symbol, (uint64_t)s->id + 1), *value = NULL;
    if (known) return known;
    for (int i = 0; i < p->top->s.n && !value; i++) {
        const Stmt *t = p->top->s.p[i];
        if (t->kind == S_LET && t->let.sym == s) value = size_text(z, t->let.e);
    }
    if (!value && (s->dtype != DT_I64 || s->lo < 0)) return NULL;
    known = arena_printf(z->em->a, "s%d", z->n++);
    sb_printf(z->lines, "    %s = %s\n", known, value ? value : "new()");
    map_seti(z->symbol, (uint64_t)s->id + 1, (void *)(uintptr_t)known);
    return known;
}

static const char *operands(TorchSizes *z, const Expr *e, const char *format) {
    const char *t[3] = {"", "", ""};
    for (int i = 0; i < e->n && i < 3; i++)
        if (!(t[i] = size_text(z, e->a[i]))) return NULL;
    Sb s = {.a = z->em->a};
    for (; *format; format++) {
        if (*format == '$')
            sb_puts(&s, t[*++format - '0']);
        else
            sb_write(&s, format, 1);
    }
    return s.p;
}

/* e in Python; NULL: PyTorch cannot compute it. */
static const char *size_text(TorchSizes *z, Expr *e) {
    enum { DEPTH = 24 }; /* of a text that is still worth it */
    const char *r = NULL;
    int64_t lo, hi;
    if (z->depth++ < DEPTH) switch (e->op) {
        case E_CONST:
            if (e->dtype == DT_I64) r = arena_printf(z->em->a, "%lld", (long long)e->i);
            if (e->dtype == DT_BOOL) r = e->i ? "True" : "False";
            break;
        case E_SYM: r = symbol_text(z, e->sym); break;
        case E_INDIM: {
            const Io *io = &z->em->p->in[e->i >> 8];
            const int axis = (int8_t)(e->i & 255);
            if (io->kind == VT_TENSOR && axis >= 0)
                r = arena_printf(z->em->a, "a[%d].shape[%d]", (int)(e->i >> 8), axis);
            if (io->kind == VT_TENSOR && axis == -1)
                r = arena_printf(z->em->a, "a[%d].dim()", (int)(e->i >> 8));
            break;
        }
        case E_GUARD: r = size_text(z, e->a[1]); break; /* where it does not hold the run fails */
        case E_TELL: r = size_text(z, e->a[0]); break;
        default:
            if (e->dtype != DT_I64 && e->dtype != DT_BOOL) break;
            switch (e->op) {
            case E_ADD: r = operands(z, e, "($0 + $1)"); break;
            case E_SUB: r = operands(z, e, "($0 - $1)"); break;
            case E_MUL: r = operands(z, e, "($0 * $1)"); break;
            case E_NEG: r = operands(z, e, "(-$0)"); break;
            case E_DIV: /* towards zero */
                if (e_range(e->a[0], &lo, &hi) && lo >= 0 && e_range(e->a[1], &lo, &hi) && lo > 0)
                    r = operands(z, e, "($0 // $1)");
                break;
            case E_FDIV:
                if (e_range(e->a[1], &lo, &hi) && (lo > 0 || hi < 0))
                    r = operands(z, e, "($0 // $1)");
                break;
            case E_MOD:
                if (e_range(e->a[1], &lo, &hi) && lo > 0) r = operands(z, e, "($0 % $1)");
                break;
            case E_MIN: r = operands(z, e, "torch.sym_min($0, $1)"); break;
            case E_MAX: r = operands(z, e, "torch.sym_max($0, $1)"); break;
            case E_LT: r = operands(z, e, "($0 < $1)"); break;
            case E_LE: r = operands(z, e, "($0 <= $1)"); break;
            case E_EQ: r = operands(z, e, "($0 == $1)"); break;
            case E_AND: r = operands(z, e, "($0 and $1)"); break;
            case E_OR: r = operands(z, e, "($0 or $1)"); break;
            case E_NOT: r = operands(z, e, "(not $0)"); break;
            case E_SELECT: r = operands(z, e, "($1 if $0 else $2)"); break;
            default: break;
            }
        }
    z->depth--;
    return r;
}

/* The function outputs(a, new) of torch_fake.inc. */
static void put_outputs(Emit *em, Sb *s) {
    Sb lines = {.a = em->a}, result = {.a = em->a};
    TorchSizes z = {.em = em, .symbol = map_new(em->a), .lines = &lines};
    for (int i = 0; i < em->p->nout; i++) {
        const Io *io = &em->p->out[i];
        const char *type =
            io->kind == VT_TENSOR && io->t->rank >= 0 ? torch_type(io->elem_dtype) : NULL;
        if (!type) {
            sb_puts(&result, "        None,\n");
            continue;
        }
        sb_printf(&result, "        (\"%s\", (", type);
        for (int d = 0; d < io->t->rank; d++) {
            const char *size = size_text(&z, io->t->dim[d]);
            sb_printf(&result, "%s, ", size ? size : "new()");
        }
        sb_puts(&result, ")),\n");
    }
    sb_puts(s, "def outputs(a, new):\n    import torch\n");
    sb_printf(s, "%s    return [\n%s    ]\n\n\n", lines.n ? lines.p : "", result.n ? result.p : "");
}

/* ---- the text -------------------------------------------------------------------------------- */
static void refuse(Emit *em, const char *what, const Io *io, const char *why) {
    err(em->c->d, ST_UNSUPPORTED, NULL, "%s '%s' %s (--torch)", what, io->name, why);
}

static void check(Emit *em, const char *what, const Io *io) {
    if (emit_is_gpu(em) && is_list(io))
        refuse(em, what, io, "is a sequence, which PyTorch's operators for GPUs cannot have");
    if (io->elem_dtype != DT_NONE && !torch_type(io->elem_dtype))
        refuse(em, what, io,
               arena_printf(em->a, "is of %s, which PyTorch has no tensors of",
                            dtype_name(io->elem_dtype)));
}

void put_torch(Emit *em, Sb *text) {
    const Program *p = em->p;
    if (!p->torch_name) return;
    bool bare = true, lists = false;
    for (int i = 0; i < p->nin; i++) {
        check(em, "input", &p->in[i]);
        bare = bare && (p->in[i].kind == VT_OPTIONAL || is_list(&p->in[i]));
        lists = lists || is_list(&p->in[i]);
    }
    for (int i = 0; i < p->nout; i++) {
        check(em, "output", &p->out[i]);
        lists = lists || is_list(&p->out[i]);
    }
    const char *colon = strstr(p->torch_name, "::");
    Sb python = {.a = em->a};
    sb_printf(&python, "NAME = \"%s\"\nDEVICE = \"%s\"\n\n\n", p->torch_name,
              emit_is_gpu(em) ? "cuda" : "cpu");
    put_outputs(em, &python);
    sb_puts(&python, embedded_text("torch_fake.inc"));
    sb_puts(text, "\n#define BK_TORCH_NAMESPACE ");
    put_string(text, arena_printf(em->a, "%.*s", (int)(colon - p->torch_name), p->torch_name));
    sb_puts(text, "\n#define BK_TORCH_NAME ");
    put_string(text, colon + 2);
    sb_puts(text, "\n#define BK_TORCH_SCHEMA ");
    put_string(text, schema(em, colon + 2));
    sb_puts(text, "\nstatic const char bk_torch_source[] =");
    for (char *line = python.p; *line;) { /* a literal for each line */
        char *end = strchr(line, '\n');
        sb_puts(text, "\n    ");
        put_string(text, arena_printf(em->a, "%.*s\n", (int)(end - line), line));
        line = end + 1;
    }
    sb_puts(text, ";\n");
    if (bare) sb_puts(text, "#define BK_TORCH_BARE\n");
    if (lists) {
        sb_puts(text, "#define BK_TORCH_LISTS\n#undef BX_BODY\n#define BX_BODY BX_FN\n");
        put_embedded(text, (const char *const[]){"extern/extern.inc", "extern/seq.inc", NULL});
    }
    sb_puts(text, embedded_text("torch.inc"));
}
