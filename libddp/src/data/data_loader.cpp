#include "ddp/data/data_loader.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/thread_state.h"
#include "ddp/core/error.h"
#include "ddp/trace/device_span.h"
#include "ddp/trace/recorder.h"
#include "tensor/copy.h"

namespace ddp::data {
namespace {

std::int64_t count_batches(std::int64_t examples, const DataLoaderOptions& options) {
  return options.drop_last ? examples / options.batch_size : (examples + options.batch_size - 1) / options.batch_size;
}

/// The same numbers on the loader's device. CPU devices share the memory: a new handle that keeps the old one. To a GPU
/// it is a copy on the thread's current stream, out of pinned memory: what the dataset keeps, or made elsewhere, is
/// brought there first.
Tensor place(const Tensor& tensor, Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (device.is_cuda() && tensor.device().is_cpu() && !tensor.is_pinned()) {
    Tensor pinned = empty(tensor.sizes(), {.dtype = tensor.dtype(), .pinned = true});
    pinned.copy_(tensor);
    return raw::to(pinned, device);
  }
  if (!tensor.device().is_cpu() || !device.is_cpu()) return raw::to(tensor, device);
  return from_blob(tensor.data(), tensor.sizes(), {tensor.dtype(), device}, tensor.strides(), [kept = tensor] {});
}

}  // namespace

/// One pass over the indices. Batches are numbered; a worker takes the next number while it is less than
/// `capacity` ahead of the consumer, and leaves the batch in slot number % capacity.
class DataLoader::Epoch {
 public:
  Epoch(const Dataset& dataset, std::vector<std::int64_t> indices, const DataLoaderOptions& options,
        std::shared_ptr<Stream> copy_stream);
  ~Epoch();
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  /// False after the last batch.
  bool next(Batch& batch);

 private:
  struct Slot {
    Batch batch;                  // on the loader's device
    std::optional<Event> copied;  // end of the copy to a GPU
    std::exception_ptr error;
    bool filled = false;
  };
  /// Shared with the workers, so that one that is left behind does not touch freed memory of the loader.
  struct State {
    const Dataset* dataset = nullptr;
    std::vector<std::int64_t> indices;
    DataLoaderOptions options;
    std::shared_ptr<Stream> copy_stream;
    std::int64_t batches = 0;
    std::int64_t capacity = 0;

    std::mutex mutex;
    std::condition_variable room;   // workers: a slot became free, or stop
    std::condition_variable ready;  // consumer: the batch it waits for is there
    std::condition_variable gone;   // destructor: a worker has ended
    std::vector<Slot> slots;
    std::int64_t taken = 0;     // numbers given to workers
    std::int64_t consumed = 0;  // batches given out
    int running = 0;
    bool stop = false;

    Batch examples(std::int64_t number) const;
    Slot make(std::int64_t number) const;
    Slot& slot(std::int64_t number) { return slots[static_cast<std::size_t>(number % capacity)]; }
  };

  static void work(const std::shared_ptr<State>& state);
  void start();
  void finish() noexcept;

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::thread> threads_;
};

DataLoader::Epoch::Epoch(const Dataset& dataset, std::vector<std::int64_t> indices, const DataLoaderOptions& options,
                         std::shared_ptr<Stream> copy_stream) {
  State& state = *state_;
  state.dataset = &dataset;
  state.indices = std::move(indices);
  state.options = options;
  state.copy_stream = std::move(copy_stream);
  state.batches = count_batches(static_cast<std::int64_t>(state.indices.size()), options);
  // Never more places than batches, whatever `prefetch` is.
  state.capacity = std::clamp<std::int64_t>(std::int64_t{options.workers} * options.prefetch, 1,
                                            std::max<std::int64_t>(1, state.batches));
  state.slots.resize(static_cast<std::size_t>(state.capacity));
  try {
    start();
  } catch (const std::system_error& error) {
    finish();
    detail::fail<Error>("DataLoader: cannot start ", options.workers, " worker threads: ", error.what());
  }
}

DataLoader::Epoch::~Epoch() { finish(); }

void DataLoader::Epoch::start() {
  for (int i = 0; i < state_->options.workers; ++i) {
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->running;
    }
    try {
      threads_.emplace_back([state = state_] { work(state); });
    } catch (...) {
      const std::lock_guard lock(state_->mutex);
      --state_->running;
      throw;
    }
  }
}

void DataLoader::Epoch::finish() noexcept {
  bool all_gone = true;
  {
    std::unique_lock lock(state_->mutex);
    state_->stop = true;
    state_->room.notify_all();
    all_gone = state_->gone.wait_for(lock, state_->options.timeout, [this] { return state_->running == 0; });
  }
  if (!all_gone) {
    std::fprintf(stderr,
                 "[ddp] warning: DataLoader: a worker has not come back from Dataset::get_batch for %lld ms after the "
                 "end of the loop; it is left behind\n",
                 static_cast<long long>(state_->options.timeout.count()));
  }
  for (std::thread& thread : threads_) {
    if (all_gone) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  threads_.clear();
}

Batch DataLoader::Epoch::State::examples(std::int64_t number) const {
  const std::int64_t begin = number * options.batch_size;
  const std::int64_t count = std::min(options.batch_size, static_cast<std::int64_t>(indices.size()) - begin);
  return dataset->get_batch(
      std::span(indices).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
}

DataLoader::Epoch::Slot DataLoader::Epoch::State::make(std::int64_t number) const {
  Slot slot;
  slot.filled = true;
  if (!copy_stream) {
    slot.batch = examples(number);
    slot.batch = {place(slot.batch.input, options.device), place(slot.batch.target, options.device)};
    return slot;
  }
  Batch host;
  {
    const core::PinHostMemory pin;
    host = examples(number);
  }
  // The device memory is the copy stream's: it comes back there when its last user is done, and the next copy into it
  // waits for that on the device.
  const StreamGuard guard(*copy_stream);
  trace::DeviceSpan span(trace::SpanKind::copy, *copy_stream, "batch");
  slot.batch = {place(host.input, options.device), place(host.target, options.device)};
  span.end(*copy_stream);
  slot.copied.emplace(options.device);
  slot.copied->record(*copy_stream);
  return slot;
}

void DataLoader::Epoch::work(const std::shared_ptr<State>& shared) {
  pthread_setname_np(pthread_self(), "ddp-loader");
  sigset_t pipe;  // a dataset that reads from a closed socket gets an error, not a signal
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);

  State& state = *shared;
  std::unique_lock lock(state.mutex);
  for (;;) {
    // No deadline: the consumer may take any time for a step, and its end always sets `stop`.
    state.room.wait(lock, [&state] {
      return state.stop || state.taken == state.batches || state.taken < state.consumed + state.capacity;
    });
    if (state.stop || state.taken == state.batches) break;
    const std::int64_t number = state.taken++;
    if (state.taken == state.batches) state.room.notify_all();
    lock.unlock();
    Slot made;
    try {
      made = state.make(number);
    } catch (...) {
      made.error = std::current_exception();
      made.filled = true;
    }
    lock.lock();
    state.slot(number) = std::move(made);
    if (number == state.consumed) state.ready.notify_one();
  }
  --state.running;
  state.gone.notify_all();
}

bool DataLoader::Epoch::next(Batch& batch) {
  const trace::ScopedSpan span(trace::SpanKind::data_wait);
  State& state = *state_;
  Slot slot;
  if (state.options.workers == 0) {
    if (state.consumed == state.batches) return false;
    slot = state.make(state.consumed++);
  } else {
    std::unique_lock lock(state.mutex);
    if (state.consumed == state.batches) return false;
    const std::int64_t number = state.consumed;
    const bool in_time =
        state.ready.wait_for(lock, state.options.timeout, [&state, number] { return state.slot(number).filled; });
    DDP_CHECK(in_time, TimeoutError, "DataLoader: batch ", number, " of ", state.batches, " was not ready after ",
              static_cast<std::int64_t>(state.options.timeout.count()), " ms");
    slot = std::exchange(state.slot(number), {});
    ++state.consumed;
    state.room.notify_one();
  }
  if (slot.error) std::rethrow_exception(slot.error);
  if (slot.copied) {
    const StreamView stream = current_stream(state.options.device);
    stream.wait(*slot.copied);
    for (const Tensor& tensor : {slot.batch.input, slot.batch.target}) {
      if (tensor.defined()) tensor.used_on(stream);
    }
  }
  batch = std::move(slot.batch);
  return true;
}

DataLoader::DataLoader(const Dataset& dataset, const Sampler& sampler, const DataLoaderOptions& options)
    : dataset_(&dataset), sampler_(&sampler), options_(options) {
  const std::int64_t share = sampler.size();
  DDP_CHECK(options.batch_size >= 1, InvalidArgument, "DataLoader: batch_size is ", options.batch_size,
            "; it must be at least 1");
  DDP_CHECK(options.batch_size <= share, InvalidArgument, "DataLoader: batch_size ", options.batch_size,
            " is larger than the ", share, " examples that the sampler gives (dataset of ", dataset.size(), ")");
  DDP_CHECK(options.workers >= 0, InvalidArgument, "DataLoader: workers is ", options.workers,
            "; it must be at least 0");
  DDP_CHECK(options.prefetch >= 1, InvalidArgument, "DataLoader: prefetch is ", options.prefetch,
            "; it must be at least 1");
  DDP_CHECK(options.timeout.count() >= 1, InvalidArgument, "DataLoader: timeout is ",
            static_cast<std::int64_t>(options.timeout.count()), " ms; it must be at least 1 ms");
  if (options.device.is_cuda()) {
    copy_stream_ = std::make_shared<Stream>(options.device);
    trace::name_track(*copy_stream_, concat(options.device, " copy"));
  }
}

DataLoader::Iterator DataLoader::begin() {
  return Iterator(std::make_shared<Epoch>(*dataset_, sampler_->indices(), options_, copy_stream_));
}

std::int64_t DataLoader::size() const { return count_batches(sampler_->size(), options_); }

DataLoader::Iterator::Iterator(std::shared_ptr<DataLoader::Epoch> epoch) : epoch_(std::move(epoch)) { ++*this; }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (done_) return *this;
  done_ = true;  // also after an exception
  const std::shared_ptr<DataLoader::Epoch> epoch = std::move(epoch_);
  batch_ = {};
  if (epoch->next(batch_)) {
    epoch_ = epoch;
    done_ = false;
  }
  return *this;
}

}  // namespace ddp::data
