#pragma once

#include <cstdint>

#include "ddp/tensor/random.h"
#include "ddp/tensor/tensor.h"

/// Raw softmax family, losses, embedding and dropout; rules as in elementwise.h.
namespace ddp::raw {

Tensor softmax(const Tensor& x, std::int64_t dim);
Tensor softmax_grad(const Tensor& grad, const Tensor& y, std::int64_t dim);
Tensor log_softmax(const Tensor& x, std::int64_t dim);
Tensor log_softmax_grad(const Tensor& grad, const Tensor& y, std::int64_t dim);

enum class Reduction : std::uint8_t { mean, sum };
struct CrossEntropyResult {
  Tensor loss;       // one element
  Tensor log_probs;  // [N, C], saved for backward
};
/// logits [N, C], target [N] int64 in [0, C); label smoothing e: target distribution (1-e)*onehot + e/C. A
/// label out of range throws InvalidArgument naming value, row and range on the CPU; on a GPU, where asking would
/// block the host, the loss becomes NaN.
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                                 double label_smoothing);
/// grad is the one-element gradient of the loss. On a GPU the row of a label out of range is NaN.
Tensor cross_entropy_grad(const Tensor& grad, const Tensor& log_probs, const Tensor& target, Reduction reduction,
                          double label_smoothing);
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction);
/// d loss / d x; the gradient for target is its negative.
Tensor mse_loss_grad(const Tensor& grad, const Tensor& x, const Tensor& target, Reduction reduction);

/// Rows of weight [V, D] at index (int64, any sizes) -> [sizes of index, D]. An index out of range throws on the
/// CPU; on a GPU its row is NaN, and in the gradient it adds to no row.
Tensor embedding(const Tensor& weight, const Tensor& index);
Tensor embedding_grad(const Tensor& grad, const Tensor& index, const Dims& weight_sizes, const Tensor& out = {},
                      bool accumulate = false);

struct DropoutResult {
  Tensor y;
  Tensor mask;  // uint8: 1 kept
};
/// Keeps an element with probability 1-p and scales it by 1/(1-p).
DropoutResult dropout(const Tensor& x, double p, Generator& generator);
Tensor dropout_grad(const Tensor& grad, const Tensor& mask, double p);

// Random numbers into an existing contiguous tensor; see ddp/tensor/random.h.
void uniform_(const Tensor& x, double low, double high, Generator& generator);
void normal_(const Tensor& x, double mean, double deviation, Generator& generator);
void randint_(const Tensor& x, std::int64_t low, std::int64_t high, Generator& generator);
/// Number of rows of logits [N, C] whose largest element's index is target [N], one int64 element.
Tensor count_correct(const Tensor& logits, const Tensor& target);

}  // namespace ddp::raw
