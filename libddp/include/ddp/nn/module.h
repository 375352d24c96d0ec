#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/tensor/tensor.h"

/// Modules: things that own parameters.
namespace ddp::nn {

using NamedTensor = std::pair<std::string, Tensor>;
/// Names to tensors in order of registration.
using StateDict = std::vector<NamedTensor>;

/// Base of everything with parameters. Derive, register members in the constructor, and write a `forward`
/// with any signature. Parameters are shared handles: `to` and loading change what they hold, never which
/// handle it is. Not thread safe.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Parameters of this and all registered modules with full path names ("fc.weight"), in order of
  /// registration. A tensor registered twice comes once, under its first name.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<Tensor> parameters() const;
  /// Tensors that are state and not trained (running statistics), likewise.
  std::vector<NamedTensor> named_buffers() const;
  std::vector<Tensor> buffers() const;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> named_children() const;

  /// Moves parameters, gradients and buffers. Handles stay valid. Tied tensors stay tied; views that merely
  /// share memory do not. Converting the dtype applies to floating-point tensors only. What is in place already
  /// is not touched. Blocks the host when it leaves a GPU. Throws InvalidArgument, and moves nothing, when a
  /// parameter that would move has gradient hooks or its gradient in a bucket: move before wrapping.
  void to(Device device);
  void to(DType dtype);

  /// Sets the mode of this and all registered modules.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void zero_grad();

  /// Copies of the handles (not of the numbers) of all parameters and buffers, tied tensors under each name.
  StateDict state_dict() const;
  /// Copies the numbers in, converting dtype and device. Throws InvalidArgument that lists all missing,
  /// unexpected and repeated names and wrong sizes, and then changes nothing (`strict` false: only those that
  /// match are loaded, but matching none is still an error). One name of a tied tensor is enough.
  void load_state_dict(const StateDict& state, bool strict = true);

 protected:
  /// Registers a trainable tensor and returns it. Throws InvalidArgument for a name used twice, empty or
  /// with a dot. An undefined tensor is allowed and skipped (no bias).
  Tensor register_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  Tensor register_buffer(const std::string& name, Tensor tensor);
  /// Registers a part and returns it. The same part may be registered in several places. Throws
  /// InvalidArgument for a bad name, null, or a part that contains this module.
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    add_child(name, module);
    return module;
  }

 private:
  void add_child(const std::string& name, std::shared_ptr<Module> module);
  void add_parameters(std::vector<Tensor>& all) const;
  void check_name(const std::string& name) const;
  template <class Convert>
  void convert(const Convert& convert);
  template <class Visit>
  void visit(const std::string& prefix, const Visit& visit) const;

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool training_ = true;
};

/// A module from one tensor to one tensor: what Sequential is made of.
class UnaryModule : public Module {
 public:
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }
};

/// Runs its modules one after the other. Children are named "0", "1", ...
class Sequential final : public UnaryModule {
 public:
  Sequential() = default;
  template <class... Ms>
  explicit Sequential(std::shared_ptr<Ms>... modules) {
    (push_back(std::move(modules)), ...);
  }
  /// Throws InvalidArgument for null.
  void push_back(std::shared_ptr<UnaryModule> module);
  Tensor forward(const Tensor& x) override;
  std::size_t size() const { return modules_.size(); }

 private:
  std::vector<std::shared_ptr<UnaryModule>> modules_;
};

}  // namespace ddp::nn
