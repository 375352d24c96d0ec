#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddp/comm/process_group.h"

/// Threads as ranks.
namespace ddp::test {

using RankFunction = std::function<void(int rank, const std::shared_ptr<comm::ProcessGroup>& group)>;

struct RankOptions {
  std::string backend = "local";  ///< or "gloo": over a HashStore, ranks are threads all the same
  Device device = Device::cpu();  ///< of every rank, for "local"
  std::chrono::milliseconds timeout{20'000};
  bool check_collectives = false;
  std::function<bool(int)> shared_memory = [](int) { return true; };  ///< by rank
};

/// Calls `body(rank)` on a thread for each rank and rethrows the error that came first. `on_error` is told of it
/// before the other ranks have ended.
inline void run_threads(int size, const std::function<void(int)>& body,
                        const std::function<void(int, const std::string&)>& on_error = {}) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        if (on_error) on_error(rank, error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

/// Runs `body` for `size` ranks that are threads of this process. A rank that throws makes the others' calls fail;
/// the error that came first is rethrown.
inline void run_ranks(int size, const RankFunction& body, const RankOptions& options = {}) {
  std::vector<std::shared_ptr<comm::ProcessGroup>> groups(static_cast<std::size_t>(size));
  std::mutex mutex;
  std::shared_ptr<comm::Store> store;
  if (options.backend == "local") {
    groups =
        comm::init_local_groups(std::vector<Device>(static_cast<std::size_t>(size), options.device), options.timeout);
  } else {
    store = std::make_shared<comm::HashStore>();
  }
  const auto group_of = [&](int rank) {
    const std::lock_guard lock(mutex);
    return groups[static_cast<std::size_t>(rank)];
  };
  run_threads(
      size,
      [&](int rank) {
        auto group = group_of(rank);
        if (!group) {
          group = comm::init_process_group({.backend = options.backend,
                                            .rank = rank,
                                            .size = size,
                                            .store = store,
                                            .timeout = options.timeout,
                                            .check_collectives = options.check_collectives,
                                            .shared_memory = options.shared_memory(rank)});
          const std::lock_guard lock(mutex);
          groups[static_cast<std::size_t>(rank)] = group;
        }
        body(rank, group);
      },
      [&](int rank, const std::string& text) {
        if (const auto group = group_of(rank)) group->abort(text);
      });
}

}  // namespace ddp::test
