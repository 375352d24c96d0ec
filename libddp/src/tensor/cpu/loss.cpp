#include <algorithm>
#include <limits>

#include "core/thread_pool.h"
#include "tensor/backend/loss_backend.h"
#include "tensor/backend/softmax_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/lane_sum.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/cpu/vector_math.h"

namespace ddp::raw {
namespace {

using cpu::load;
using cpu::store;

// Sum of f(begin, end) over [0, n) in pieces of a fixed size, so that it is the same for any number of threads.
template <class F>
double sum_of_pieces(Device device, std::int64_t n, std::int64_t piece, F&& f) {
  const std::int64_t pieces = (n + piece - 1) / piece;
  const cpu::Scratch<double> sums(pieces, device);
  core::parallel_for(device, pieces, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sums[i] = f(i * piece, std::min(n, (i + 1) * piece));
  });
  double total = 0;
  for (std::int64_t i = 0; i < pieces; ++i) total += sums[i];
  return total;
}

// The mean over nothing is 0 / 0.
double reduced(double sum, std::int64_t count, Reduction reduction) {
  return reduction == Reduction::sum ? sum : sum / static_cast<double>(count);
}

std::int64_t rows_per_piece(std::int64_t columns) { return std::max<std::int64_t>(1, 8192 / (columns + 1)); }

template <class T>
void cross_entropy_loss(const Tensor& logits, const Tensor& target, Reduction reduction, double smoothing,
                        const Tensor& log_probs, const Tensor& loss) {
  const std::int64_t rows = log_probs.size(0);
  const std::int64_t classes = log_probs.size(1);
  const T* from = log_probs.data_ptr<T>();
  const auto* label = target.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < rows; ++i) {
    DDP_CHECK(label[i] >= 0 && label[i] < classes, InvalidArgument, "cross_entropy: label ", label[i], " in row ", i,
              "; allowed: 0 to ", classes - 1);
  }
  if (logits.numel() != 0) cpu_softmax().softmax(logits, {rows, classes, 1}, true, log_probs);
  const double sum =
      sum_of_pieces(loss.device(), rows, rows_per_piece(classes), [&](std::int64_t begin, std::int64_t end) {
        double part = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const T* row = from + i * classes;
          part -= (1 - smoothing) * static_cast<double>(load(row[label[i]]));
          if (smoothing != 0) {
            part -= smoothing / static_cast<double>(classes) *
                    cpu::lane_sum(classes, [&](std::int64_t j) { return load(row[j]); });
          }
        }
        return part;
      });
  *loss.data_ptr<T>() = store<T>(reduced(sum, rows, reduction));
}

template <class T>
void cross_entropy_gradient(const Tensor& grad, const Tensor& log_probs, const Tensor& target, Reduction reduction,
                            double smoothing, const Tensor& out) {
  using C = ComputeType<T>;
  const std::int64_t rows = log_probs.size(0);
  const std::int64_t classes = log_probs.size(1);
  const T* from = log_probs.data_ptr<T>();
  const auto* label = target.data_ptr<std::int64_t>();
  T* to = out.data_ptr<T>();
  const C scale = static_cast<C>(reduced(static_cast<double>(load(*grad.data_ptr<T>())), rows, reduction));
  const C all = static_cast<C>(smoothing / static_cast<double>(classes));
  const C own = static_cast<C>(1 - smoothing);
  core::parallel_for(out.device(), rows, rows_per_piece(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = from + i * classes;
      T* result = to + i * classes;
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t j = 0; j < classes; ++j) result[j] = store<T>(scale * (cpu::exp_of(load(row[j])) - all));
      const std::int64_t j = label[i];
      result[j] = store<T>(scale * (cpu::exp_of(load(row[j])) - all - own));
    }
  });
}

template <class T>
void mse(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& loss) {
  const T* a = x.data_ptr<T>();
  const T* b = target.data_ptr<T>();
  const double sum = sum_of_pieces(loss.device(), x.numel(), 8192, [&](std::int64_t begin, std::int64_t end) {
    return cpu::lane_sum(end - begin, [&](std::int64_t i) {
      const auto distance = load(a[begin + i]) - load(b[begin + i]);
      return distance * distance;
    });
  });
  *loss.data_ptr<T>() = store<T>(reduced(sum, x.numel(), reduction));
}

template <class T>
void mse_gradient(const Tensor& grad, const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& out) {
  using C = ComputeType<T>;
  const double sum_scale = 2 * static_cast<double>(load(*grad.data_ptr<T>()));
  const C scale = static_cast<C>(reduced(sum_scale, x.numel(), reduction));
  cpu::map<T, T, T>(out, [scale](C a, C b) { return scale * (a - b); }, x, target);
}

template <class T>
std::int64_t correct_rows(const Tensor& logits, const Tensor& target) {
  const std::int64_t classes = logits.size(1);
  const T* row = logits.data_ptr<T>();
  const auto* label = target.data_ptr<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < logits.size(0); ++i, row += classes) {
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < classes; ++j) {
      const auto value = load(row[j]);
      const auto most = load(row[best]);
      if (value > most || (value != value && most == most)) best = j;
    }
    count += classes > 0 && best == label[i] ? 1 : 0;
  }
  return count;
}

class CpuLoss final : public LossBackend {
 public:
  void cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction, double label_smoothing,
                     const Tensor& log_probs, const Tensor& loss) override {
    dispatch_floating("cross_entropy", logits.dtype(), [&]<class T>(TypeTag<T>) {
      cross_entropy_loss<T>(logits, target, reduction, label_smoothing, log_probs, loss);
    });
  }
  void cross_entropy_grad(const Tensor& grad, const Tensor& log_probs, const Tensor& target, Reduction reduction,
                          double label_smoothing, const Tensor& out) override {
    dispatch_floating("cross_entropy_grad", log_probs.dtype(), [&]<class T>(TypeTag<T>) {
      cross_entropy_gradient<T>(grad, log_probs, target, reduction, label_smoothing, out);
    });
  }
  void mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& loss) override {
    dispatch_floating("mse_loss", x.dtype(), [&]<class T>(TypeTag<T>) { mse<T>(x, target, reduction, loss); });
  }
  void mse_loss_grad(const Tensor& grad, const Tensor& x, const Tensor& target, Reduction reduction,
                     const Tensor& out) override {
    dispatch_floating("mse_loss_grad", x.dtype(),
                      [&]<class T>(TypeTag<T>) { mse_gradient<T>(grad, x, target, reduction, out); });
  }
  void count_correct(const Tensor& logits, const Tensor& target, const Tensor& out) override {
    dispatch_floating("count_correct", logits.dtype(),
                      [&]<class T>(TypeTag<T>) { *out.data_ptr<std::int64_t>() = correct_rows<T>(logits, target); });
  }
};

}  // namespace

LossBackend& cpu_loss() {
  static CpuLoss backend;
  return backend;
}

}  // namespace ddp::raw
