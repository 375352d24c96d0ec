#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device_runtime.h"
#include "core/env.h"
#include "ddp/core/error.h"

namespace ddp {
namespace core {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

int default_threads() {
  if (const auto set = env_int("OMP_NUM_THREADS", 1, kMaxThreads)) return static_cast<int>(*set);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                  ? CPU_COUNT(&allowed)
                  : static_cast<int>(std::thread::hardware_concurrency());
  const auto local_ranks = env_int("LOCAL_WORLD_SIZE", 1, 1 << 20).value_or(1);
  return std::max<int>(1, cores / static_cast<int>(local_ranks));
}

thread_local bool t_inside = false;  // set while a piece runs: nested calls stay on their thread

/// The helpers of one CPU device. Pieces are numbered and taken from a counter; the caller takes part.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) : threads_(threads) {
    // The library's threads take no signals: the program's handlers run on the program's threads, and a
    // write to a closed pipe gives an error instead of ending the process.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      stop();
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  void run(std::int64_t n, std::int64_t pieces, RangeFunction function) {
    const std::lock_guard one_job(job_mutex_);
    Job job(n, pieces, function);
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++generation_;
    }
    wake_.notify_all();
    work(job);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return job.finished == job.pieces && job.helpers == 0; });
    job_ = nullptr;
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  struct Job {
    Job(std::int64_t total, std::int64_t count, RangeFunction callable) : n(total), pieces(count), function(callable) {}
    std::int64_t n;
    std::int64_t pieces;
    RangeFunction function;
    std::atomic<std::int64_t> next{0};
    std::int64_t finished = 0;  // guarded by mutex_
    int helpers = 0;            // guarded by mutex_
    std::exception_ptr error;   // guarded by mutex_
  };

  void work(Job& job) {
    std::int64_t done = 0;
    std::exception_ptr error;
    t_inside = true;
    for (std::int64_t piece = job.next.fetch_add(1); piece < job.pieces; piece = job.next.fetch_add(1)) {
      try {
        job.function(job.n * piece / job.pieces, job.n * (piece + 1) / job.pieces);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      ++done;
    }
    t_inside = false;
    const std::lock_guard lock(mutex_);
    job.finished += done;
    if (error && !job.error) job.error = error;
  }

  void help() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || (generation_ != seen && job_ != nullptr); });
      if (stopping_) return;
      seen = generation_;
      Job* job = job_;
      ++job->helpers;
      lock.unlock();
      work(*job);
      lock.lock();
      --job->helpers;
      done_.notify_all();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

  const int threads_;
  std::mutex job_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

struct DevicePool {
  std::mutex mutex;
  std::shared_ptr<ThreadPool> pool;
  std::atomic<int> threads{0};  // 0: not asked for yet
};

/// Part of the per-device runtime. Never destroyed: joining threads while statics are taken down can hang.
DevicePool& device_pool(Device device) {
  static auto* pools = new std::array<DevicePool, kMaxCpuDevices>();
  DDP_CHECK(device.is_cpu(), InvalidArgument, "threads belong to CPU devices, not to ", device);
  check_device(device);
  return (*pools)[static_cast<std::size_t>(device.index)];
}

int threads_of(DevicePool& entry) {
  int threads = entry.threads.load(std::memory_order_acquire);
  if (threads == 0) {
    const std::lock_guard lock(entry.mutex);
    threads = entry.threads.load(std::memory_order_acquire);
    if (threads == 0) {
      threads = default_threads();
      entry.threads.store(threads, std::memory_order_release);
    }
  }
  return threads;
}

}  // namespace

void parallel_for_range(Device device, std::int64_t n, std::int64_t grain, RangeFunction function) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (n <= grain || t_inside) {
    function(0, n);
    return;
  }
  DevicePool& entry = device_pool(device);
  const int threads = threads_of(entry);
  if (threads == 1) {
    function(0, n);
    return;
  }
  std::shared_ptr<ThreadPool> pool;
  {
    const std::lock_guard lock(entry.mutex);
    if (!entry.pool || entry.pool->threads() != threads) entry.pool = std::make_shared<ThreadPool>(threads);
    pool = entry.pool;
  }
  pool->run(n, std::min<std::int64_t>(threads, (n + grain - 1) / grain), function);
}

}  // namespace core

int num_threads(Device device) { return core::threads_of(core::device_pool(device)); }

void set_num_threads(int n, Device device) {
  DDP_CHECK(n >= 1 && n <= core::kMaxThreads, InvalidArgument, "the number of threads is ", n, "; allowed: 1 to ",
            core::kMaxThreads);
  core::device_pool(device).threads.store(n, std::memory_order_release);
}

}  // namespace ddp
