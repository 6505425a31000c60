// report.cc: finds the lines of code addresses, by addr2line and only for reports.
#include "internal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <map>

namespace emu {

namespace {

uintptr_t library_base() {
    static uintptr_t base;
    Dl_info info;
    if (!base && dladdr(&device, &info)) base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    return base;
}

struct Place {
    std::string function, line; // FILE:LINE
    std::string inlined;        // the lines where it was inlined, innermost first, each after ", "
};

std::map<const void *, Place> places;

std::string quoted(const char *s) {
    std::string q = "'";
    for (; *s; s++) {
        if (*s == '\'')
            q += "'\\''";
        else
            q += *s;
    }
    return q + "'";
}

std::string read_line(FILE *f) {
    char buffer[1024];
    if (!fgets(buffer, sizeof buffer, f)) return "";
    buffer[strcspn(buffer, "\n")] = 0;
    if (char *note = strstr(buffer, " (discriminator")) *note = 0;
    return buffer;
}

// The place of the call that returns to pc; for an inlined function, its innermost line.
const Place &place(const void *pc) {
    auto found = places.find(pc);
    if (found != places.end()) return found->second;
    Place &p = places[pc];
    Dl_info info;
    if (!pc || !dladdr(pc, &info) || !info.dli_fname) {
        p.line = "unknown line";
        return p;
    }
    char offset[32];
    uintptr_t at = reinterpret_cast<uintptr_t>(pc) - 1,
              base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    snprintf(offset, sizeof offset, "0x%llx", static_cast<unsigned long long>(at - base));
    std::string command =
        "addr2line -Cife " + quoted(info.dli_fname) + " " + offset + " 2>/dev/null";
    if (FILE *f = popen(command.c_str(), "r")) {
        std::string function = read_line(f), line = read_line(f);
        while (!read_line(f).empty()) p.inlined += ", " + read_line(f);
        pclose(f);
        if (!line.empty() && line.find('?') == std::string::npos) {
            p.function = function;
            p.line = line;
            return p;
        }
    }
    p.function = info.dli_sname ? info.dli_sname : "";
    p.line = std::string(info.dli_fname) + "+" + offset;
    return p;
}

} // namespace

// ---- symbols
namespace {

struct Symbol {
    uintptr_t at, size; // from the library's base
    std::string name;
};

// Those of the library that the emulator is in, by address. Static functions are not among the
// symbols that the loader has, so this reads the file.
const std::vector<Symbol> &symbols() {
    static std::vector<Symbol> all;
    static bool read;
    Dl_info info;
    if (read || !dladdr(&device, &info)) return all;
    read = true;
    FILE *f = fopen(info.dli_fname, "re");
    if (!f) return all;
    std::string text;
    char buffer[1 << 16];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) text.append(buffer, n);
    fclose(f);
    const ElfW(Ehdr) *head = reinterpret_cast<const ElfW(Ehdr) *>(text.data());
    if (text.size() < sizeof *head) return all;
    const ElfW(Shdr) *section = reinterpret_cast<const ElfW(Shdr) *>(text.data() + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *s =
            reinterpret_cast<const ElfW(Sym) *>(text.data() + section[i].sh_offset);
        const char *names = text.data() + section[section[i].sh_link].sh_offset;
        for (size_t n = section[i].sh_size / sizeof *s, j = 0; j < n; j++)
            if ((s[j].st_info & 15) == STT_FUNC && s[j].st_size)
                all.push_back({s[j].st_value, s[j].st_size, names + s[j].st_name});
    }
    std::sort(all.begin(), all.end(), [](const Symbol &a, const Symbol &b) { return a.at < b.at; });
    return all;
}

} // namespace

std::string symbol_of(const void *pc) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(pc) - library_base();
    const std::vector<Symbol> &all = symbols();
    auto after = std::upper_bound(all.begin(), all.end(), at,
                                  [](uintptr_t p, const Symbol &s) { return p < s.at; });
    if (after == all.begin()) return "";
    --after;
    return at - after->at < after->size ? after->name : "";
}

std::string line_of(const void *pc) { return place(pc).line; }

bool same_line(const void *a, const void *b) { return place(a).line == place(b).line; }

std::string where_is(const Thread *t, const void *pc) {
    const Place &p = place(pc);
    std::string callers = p.inlined;
    unsigned n = t->depth < kCalls ? t->depth : kCalls, shown = 0;
    // Leaves out the outermost call, in which the emulator calls the kernel.
    for (unsigned i = n; i-- > 1 && shown < 4; shown++) {
        const Place &c = place(t->calls[i].from);
        callers += ", " + c.line + c.inlined;
    }
    std::string s = p.line;
    if (!p.function.empty()) s += " (" + p.function + ")";
    if (!callers.empty()) s += " called from " + callers.substr(2);
    return s;
}

std::string thread_name(const Thread *t) {
    return "thread " + std::to_string(t->index) + " of block " + std::to_string(t->block->index);
}

uint32_t pc_pack(const void *pc) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc) - library_base());
}
const void *pc_unpack(uint32_t pc) { return reinterpret_cast<const void *>(library_base() + pc); }

} // namespace emu
