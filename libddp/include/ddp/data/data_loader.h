#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

#include "ddp/data/dataset.h"
#include "ddp/data/sampler.h"

/// Batches out.
namespace ddp::data {

struct DataLoaderOptions {
  std::int64_t batch_size = 64;
  Device device = Device::cpu();  ///< where batches are put
  int workers = 1;                ///< threads that make batches ahead; 0: made when asked for
  int prefetch = 2;               ///< batches kept ready per worker
  bool drop_last = false;         ///< leave out a last, smaller batch
};

/// Goes over a dataset in batches, in the sampler's order whatever the number of workers. Dataset and
/// sampler must outlive the loader. `begin` starts an epoch; one epoch at a time. An exception in a worker
/// is rethrown by the iterator; leaving the loop early stops the workers.
class DataLoader {
 public:
  class Iterator;
  /// Throws InvalidArgument for a batch size below 1 or larger than the sampler's share.
  DataLoader(const Dataset& dataset, const Sampler& sampler, const DataLoaderOptions& options = {});
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  Iterator begin();
  std::default_sentinel_t end() const { return {}; }
  /// Batches an epoch.
  std::int64_t size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  /// The present batch. Handles; valid after the loop has gone on.
  Batch operator*() const { return batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.done_; }

 private:
  friend class DataLoader;
  explicit Iterator(DataLoader::Impl* loader);
  DataLoader::Impl* loader_ = nullptr;
  Batch batch_;
  bool done_ = false;
};

}  // namespace ddp::data
