// Measures Gloo's all-reduce over TCP as bench/collectives/run.py expects it.
//
// Argument: the number of processes. Uses the same sizes, batches, pinning and check as bench_processes; takes the
// best of Gloo's ring, bcube, halving-doubling and chunked ring algorithms. Prints one line "bytes microseconds" per
// size.
#include "pin_rank.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

constexpr int batches = 5;

using Context = std::shared_ptr<gloo::Context>;

double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void barrier(const Context &context)
{
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
}

// Returns how long the sum took here.
double check(const Context &context, const std::function<void()> &add, float *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        data[i] = float(context->rank + 1 + int(i % 13));
    const double begin = now_us();
    add();
    const double time = now_us() - begin;
    for (size_t i = 0; i < n; i++)
        if (data[i] != float(context->size * (context->size + 1) / 2) + float(context->size * int(i % 13))) {
            std::fprintf(stderr, "gloo: a wrong sum\n");
            std::_Exit(1);
        }
    std::memset(data, 0, n * sizeof *data);
    return time;
}

// As many turns on every rank as the slowest one's last sum lets fit into 10 ms.
int turns_for(const Context &context, double time_us)
{
    gloo::AllreduceOptions options(context);
    options.setOutput(&time_us, 1);
    options.setReduceFunction(
        [](void *a, const void *b, const void *c, size_t count) { gloo::max<double>(a, b, c, count); });
    gloo::allreduce(options);
    return int(std::max(1.0, std::min(10e3 / time_us, 500.0)));
}

double measure(const Context &context, const std::function<void()> &add, float *data, size_t n)
{
    std::vector<double> times;
    check(context, add, data, n);
    const int turns = turns_for(context, check(context, add, data, n));
    for (int batch = 0; batch < (turns > 1 ? batches : 2); batch++) {
        barrier(context);
        const double begin = now_us();
        for (int i = 0; i < turns; i++)
            add();
        times.push_back((now_us() - begin) / turns);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// Each algorithm has a context, so connections, of its own: sharing one, they hang now and then.
double best(const std::vector<Context> &contexts, float *data, size_t n)
{
    double time = 1e18;
    size_t used = 0;
    for (auto algorithm : {gloo::AllreduceOptions::Algorithm::RING, gloo::AllreduceOptions::Algorithm::BCUBE}) {
        const Context &context = contexts[used++];
        gloo::AllreduceOptions options(context);
        options.setOutput(data, n);
        options.setAlgorithm(algorithm);
        options.setReduceFunction(
            [](void *a, const void *b, const void *c, size_t count) { gloo::sum<float>(a, b, c, count); });
        time = std::min(time, measure(
                                  context, [&] { gloo::allreduce(options); }, data, n));
    }
    gloo::AllreduceHalvingDoubling<float> halving(contexts[2], {data}, int(n));
    time = std::min(time, measure(
                              contexts[2], [&] { halving.run(); }, data, n));
    gloo::AllreduceRingChunked<float> chunked(contexts[3], {data}, int(n));
    return std::min(time, measure(
                              contexts[3], [&] { chunked.run(); }, data, n));
}

int run(int rank, int ranks, const char *folder)
{
    static const size_t sizes[] = {4,      64,      1024,    4096,    16384,    65536,
                                   262144, 1048576, 4194304, 8388608, 16777216, 67108864};
    pin_rank(rank);
    gloo::rendezvous::FileStore files(folder);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    std::vector<Context> contexts;
    for (const char *name : {"ring", "bcube", "halving", "chunked"}) {
        gloo::rendezvous::PrefixStore store(name, files);
        auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
        context->connectFullMesh(store, device);
        contexts.push_back(context);
    }
    std::vector<float> data(67108864 / 4);
    for (size_t bytes : sizes) {
        const double time = best(contexts, data.data(), bytes / 4);
        if (rank == 0) {
            std::printf("%zu %.3f\n", bytes, time);
            std::fflush(stdout);
        }
    }
    for (const Context &context : contexts)
        barrier(context);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const int n = argc == 2 ? std::atoi(argv[1]) : 0;
    char folder[] = "/tmp/bench_gloo_XXXXXX";
    if (n < 2 || mkdtemp(folder) == nullptr) {
        std::fprintf(stderr, "usage: gloo PROCESSES\n");
        return 64;
    }
    for (int i = 1; i < n; i++)
        if (fork() == 0)
            std::_Exit(run(i, n, folder));
    int failed = run(0, n, folder), status = 0;
    while (wait(&status) > 0)
        failed += status != 0;
    const std::string remove = std::string("rm -rf ") + folder;
    return std::system(remove.c_str()) != 0 || failed != 0;
}
