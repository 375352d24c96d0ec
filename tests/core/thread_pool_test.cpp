#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ddp::core {
namespace {

TEST(ThreadPool, EveryIndexOnceForAnyThreadCount) {
  const Device device = Device::cpu(10);
  for (const int threads : {1, 2, 3, 5}) {
    set_num_threads(threads, device);
    for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
      parallel_for(device, n, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, GrainBoundsThePieces) {
  const Device device = Device::cpu(11);
  set_num_threads(4, device);
  std::atomic<int> pieces = 0;
  parallel_for(device, 100, 60, [&](std::int64_t, std::int64_t) { ++pieces; });
  EXPECT_EQ(pieces.load(), 2);
  pieces = 0;
  parallel_for(device, 60, 60, [&](std::int64_t begin, std::int64_t end) {
    ++pieces;
    EXPECT_EQ(end - begin, 60);
  });
  EXPECT_EQ(pieces.load(), 1);
}

TEST(ThreadPool, FirstExceptionComesBackAndThePoolGoesOn) {
  const Device device = Device::cpu(12);
  set_num_threads(3, device);
  EXPECT_THROW(parallel_for(device, 3, 1,
                            [&](std::int64_t begin, std::int64_t) {
                              if (begin == 1) throw std::runtime_error("piece");
                            }),
               std::runtime_error);
  std::atomic<std::int64_t> sum = 0;
  parallel_for(device, 10, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum.load(), 10);
}

TEST(ThreadPool, NestedCallsStayOnTheirThread) {
  const Device device = Device::cpu(13);
  set_num_threads(2, device);
  parallel_for(device, 2, 1, [&](std::int64_t, std::int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(device, 8, 1, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(end - begin, 8);
    });
  });
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  const Device device = Device::cpu(14);
  set_num_threads(2, device);
  std::atomic<std::int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        parallel_for(device, 4, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 50 * 4);
}

}  // namespace
}  // namespace ddp::core
