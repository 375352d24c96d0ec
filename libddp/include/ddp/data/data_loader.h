#pragma once

#include <chrono>
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
  /// Longest wait for one batch. A worker that is still inside the dataset so long after the loop ended is left
  /// behind with a warning, and the dataset must then outlive it.
  std::chrono::milliseconds timeout{300000};
};

/// Goes over a dataset in batches, in the sampler's order whatever the number of workers. Dataset and
/// sampler must outlive the loader and its iterators. Each `begin` starts an epoch with the indices that the
/// sampler gives then, and its own threads. An exception in a worker is rethrown by the iterator when the loop
/// gets to that batch, and ends the epoch; when the last copy of the iterator is gone (a loop left early), the
/// workers stop. On CPU devices a batch is not copied, only its tensors name the device.
///
/// For a GPU a worker makes its batch in pinned host memory and has it copied on a stream that belongs to the loader,
/// while earlier batches are worked on. The stream that is current when the iterator takes the batch waits for the
/// copy; the host does not. A batch that is used on yet another stream needs `Tensor::used_on`.
class DataLoader {
 public:
  class Iterator;
  /// Throws InvalidArgument for a batch size below 1 or larger than the sampler's share, workers below 0,
  /// prefetch below 1, a timeout below 1 ms, or a GPU that is not there.
  DataLoader(const Dataset& dataset, const Sampler& sampler, const DataLoaderOptions& options = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  Iterator begin();
  std::default_sentinel_t end() const { return {}; }
  /// Batches an epoch.
  std::int64_t size() const;

 private:
  class Epoch;
  const Dataset* dataset_;
  const Sampler* sampler_;
  DataLoaderOptions options_;
  std::shared_ptr<Stream> copy_stream_;  // null for a CPU device
};

class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  /// The present batch. Handles; valid after the loop has gone on.
  Batch operator*() const { return batch_; }
  /// Waits for the next batch. Throws what the dataset threw, or TimeoutError naming the batch.
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.done_; }

 private:
  friend class DataLoader;
  explicit Iterator(std::shared_ptr<DataLoader::Epoch> epoch);
  std::shared_ptr<DataLoader::Epoch> epoch_;
  Batch batch_;
  bool done_ = false;
};

}  // namespace ddp::data
