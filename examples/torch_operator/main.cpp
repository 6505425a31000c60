// Calls an operator of a library that `braid compile MODEL --torch NAMESPACE::NAME` made, from C++
// without Python:
//
//     braid compile add.onnx --torch demo::add -o add.so
//     torch_operator ./add.so demo::add 3x4 3x4
//
// The arguments after the name are the shapes of its inputs, which are 0, 1, 2, …. A line for each
// output. Built as build.sh does, with the headers and libraries that come with PyTorch's Python
// package.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <iostream>
#include <sstream>

static at::Tensor input(const std::string &shape) {
    std::vector<int64_t> size;
    std::istringstream words(shape);
    for (std::string n; std::getline(words, n, 'x');) size.push_back(std::stoll(n));
    int64_t count = 1;
    for (int64_t n : size) count *= n;
    return at::arange(count, at::kFloat).reshape(size);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        std::cerr << "usage: torch_operator LIBRARY NAMESPACE::NAME [SHAPE]...\n";
        return 2;
    }
    // Loading the library registers the operator.
    if (!dlopen(argv[1], RTLD_NOW)) {
        std::cerr << dlerror() << "\n";
        return 1;
    }
    try {
        c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(argv[2], "");
        std::cout << op.schema() << "\n";
        std::vector<c10::IValue> stack;
        for (int i = 3; i < argc; i++) stack.emplace_back(input(argv[i]));
        op.callBoxed(stack); // takes the inputs, leaves the outputs
        for (const c10::IValue &v : stack) {
            const at::Tensor t = v.toTensor();
            std::cout << t.dtype() << t.sizes() << " sum " << t.to(at::kDouble).sum().item<double>()
                      << "\n";
        }
    } catch (const c10::Error &e) {
        std::cerr << e.what_without_backtrace() << "\n";
        return 1;
    }
    return 0;
}
