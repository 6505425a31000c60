// stream.cpp: a model of one step, run over a stream with its state kept between the steps.
//
//     c++ -std=c++17 examples/stream.cpp -o stream $(pkg-config --cflags --libs braid)
//     ./stream STEP.onnx CHUNKS.npy input state=stateN ...
//
// CHUNKS.npy holds float32 chunks along its first axis. Each is the named input of one step,
// without that axis; behind it stand pairs of inputs and the outputs that are their next values.
// The state begins as zeros, and so are the other inputs. Prints the first element of each output
// for each step.
#include <braid.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Free {
    void operator()(braid_model *m) const { braid_model_free(m); }
    void operator()(braid_session *s) const { braid_session_free(s); }
    void operator()(braid_value *v) const { braid_value_free(v); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

// Calls a function of braid.h whose last parameters are a result and an error, and returns the
// result.
template <class T, class F, class... Args> Owned<T> make(F *function, Args... args) {
    T *result = nullptr;
    braid_error error = {};
    if (function(args..., &result, &error)) throw std::runtime_error(error.message);
    return Owned<T>(result);
}

Owned<braid_value> tensor(const braid_io &io, const float *data = nullptr) {
    std::vector<int64_t> dim(io.dim, io.dim + (io.rank < 0 ? 0 : io.rank));
    for (int64_t &n : dim) n = n < 0 ? 1 : n;
    return make<braid_value>(braid_value_new_tensor, io.dtype ? io.dtype : BRAID_FLOAT32,
                             static_cast<int32_t>(dim.size()), dim.data(), data);
}

// A step model with the values of its inputs. step() puts the new state in place of the old one.
class Stream {
  public:
    Stream(const char *path, const std::vector<std::string> &state) {
        std::vector<std::string> names;
        for (const std::string &pair : state) {
            const size_t at = pair.find('=');
            if (at == std::string::npos) throw std::runtime_error(pair + " is not INPUT=OUTPUT");
            names.push_back(pair.substr(0, at));
            names.push_back(pair.substr(at + 1));
        }
        std::vector<const char *> from, to;
        for (size_t i = 0; i < names.size(); i += 2) {
            from.push_back(names[i].c_str());
            to.push_back(names[i + 1].c_str());
        }
        braid_fold fold = {};
        fold.carry_count = static_cast<int32_t>(from.size());
        fold.carry_input = from.data();
        fold.carry_output = to.data();
        braid_options options = {};
        options.struct_size = sizeof options;
        options.fold = &fold;
        model_ = make<braid_model>(braid_load, path, &options);
        session_ = make<braid_session>(braid_session_new, model_.get(), nullptr);
        for (int32_t i = 0; i < braid_model_input_count(model_.get()); i++)
            in_.push_back(tensor(*braid_model_input(model_.get(), i)));
    }

    const braid_model *model() const { return model_.get(); }

    // Runs one step with this chunk as input `i`. The outputs; a state is in in_ instead, and NULL
    // here.
    std::vector<Owned<braid_value>> step(int32_t i, const float *chunk) {
        in_[i] = tensor(*braid_model_input(model(), i), chunk);
        std::vector<const braid_value *> in;
        for (const auto &v : in_) in.push_back(v.get());
        std::vector<braid_value *> result(braid_model_output_count(model()));
        braid_error error = {};
        if (braid_session_run(session_.get(), in.data(), result.data(), &error))
            throw std::runtime_error(error.message);
        std::vector<Owned<braid_value>> out;
        for (braid_value *v : result) out.emplace_back(v);
        for (int32_t k = 0, from, to; k < braid_model_carry_count(model()); k++) {
            if (braid_model_carry(model(), k, &from, &to, &error))
                throw std::runtime_error(error.message);
            in_[from] = std::move(out[to]);
        }
        return out;
    }

  private:
    Owned<braid_model> model_;
    Owned<braid_session> session_;
    std::vector<Owned<braid_value>> in_;
};

void run(int argc, char **argv) {
    Stream stream(argv[1], std::vector<std::string>(argv + 4, argv + argc));
    const int32_t input = braid_model_find_input(stream.model(), argv[3]);
    if (input < 0) throw std::runtime_error(std::string("the model has no input ") + argv[3]);
    const braid_io *io = braid_model_input(stream.model(), input);
    const auto chunks = make<braid_value>(braid_value_read, argv[2], io);
    if (braid_value_rank(chunks.get()) < 1 || braid_value_dtype(chunks.get()) != BRAID_FLOAT32)
        throw std::runtime_error("the chunks have to be float32, along a first axis");
    const int64_t n = braid_value_dim(chunks.get())[0];
    const int64_t size = n ? braid_value_count(chunks.get()) / n : 0;
    if (n && size != braid_value_count(tensor(*io).get()))
        throw std::runtime_error("a chunk has another size than the input");
    const float *data = static_cast<const float *>(braid_value_data(chunks.get()));
    for (int64_t i = 0; i < n; i++) {
        std::printf("%lld:", static_cast<long long>(i));
        for (const auto &v : stream.step(input, data + i * size))
            if (v && braid_value_dtype(v.get()) == BRAID_FLOAT32 && braid_value_count(v.get()))
                std::printf(" %g",
                            static_cast<double>(*static_cast<float *>(braid_value_data(v.get()))));
        std::puts("");
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: stream STEP.onnx CHUNKS.npy INPUT [INPUT=OUTPUT ...]\n");
        return 2;
    }
    try {
        run(argc, argv);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
