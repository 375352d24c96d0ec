#include "core/object_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "core/inline_vector.h"

namespace ddp::core {
namespace {

struct Base : Pooled {
  virtual ~Base() = default;
};
struct Small final : Base {
  std::int64_t value = 7;
};
struct Large final : Base {
  std::int64_t values[100] = {};
  ~Large() override { std::memset(values, 0xff, sizeof values); }
};
struct Huge final : Base {
  std::int64_t values[1000] = {};
};
struct alignas(128) Aligned final : Base {
  std::int64_t value = 1;
};

TEST(ObjectPool, PiecesOfAllSizesAreApart) {
  struct Piece {
    unsigned char* data;
    std::size_t bytes;
  };
  std::vector<Piece> pieces;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t bytes = 1; bytes < 1200; bytes += 13) {
      auto* data = static_cast<unsigned char*>(pool_allocate(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % __STDCPP_DEFAULT_NEW_ALIGNMENT__, 0U);
      std::memset(data, static_cast<int>(bytes % 251), bytes);
      pieces.push_back({data, bytes});
    }
    for (const Piece& piece : pieces) {
      for (std::size_t i = 0; i < piece.bytes; ++i) ASSERT_EQ(piece.data[i], piece.bytes % 251);
    }
    // Every other one goes back and is handed out again in the next round.
    std::vector<Piece> kept;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (i % 2 == 0) {
        kept.push_back(pieces[i]);
      } else {
        pool_deallocate(pieces[i].data, pieces[i].bytes);
      }
    }
    pieces = kept;
  }
  for (const Piece& piece : pieces) pool_deallocate(piece.data, piece.bytes);
  pool_deallocate(nullptr, 8);
}

TEST(ObjectPool, AnObjectIsFreedWithItsOwnSizeThroughItsBase) {
  std::vector<std::unique_ptr<Base>> objects;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i) {
      objects.push_back(std::make_unique<Small>());
      objects.push_back(std::make_unique<Large>());
      objects.push_back(std::make_unique<Huge>());
      objects.push_back(std::make_unique<Aligned>());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(objects.back().get()) % 128, 0U);
    }
    std::set<const void*> places;
    for (const auto& object : objects) {
      EXPECT_TRUE(places.insert(object.get()).second);
      const auto* small = dynamic_cast<const Small*>(object.get());
      const auto* large = dynamic_cast<const Large*>(object.get());
      EXPECT_EQ(small == nullptr ? 7 : small->value, 7);
      EXPECT_EQ(large == nullptr ? 0 : large->values[99], 0);
    }
    objects.clear();
  }
}

// More than a thread keeps, so that batches travel: made by one thread, freed by another, made again.
TEST(ObjectPool, WhatOneThreadMakesAnotherMayFree) {
  static constexpr std::size_t kCount = 6000;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Large>> made[2];
    const auto make = [](std::vector<std::unique_ptr<Large>>& into, std::int64_t mark) {
      for (std::size_t i = 0; i < kCount; ++i) {
        into.push_back(std::make_unique<Large>());
        into.back()->values[5] = mark + static_cast<std::int64_t>(i);
      }
    };
    const auto check_and_free = [](std::vector<std::unique_ptr<Large>>& from, std::int64_t mark) {
      std::size_t right = 0;
      for (std::size_t i = 0; i < from.size(); ++i) {
        right += from[i]->values[5] == mark + static_cast<std::int64_t>(i) ? 1 : 0;
      }
      EXPECT_EQ(right, kCount);
      from.clear();
    };
    std::thread a([&] { make(made[0], 1000); });
    make(made[1], 500000);
    a.join();
    std::thread b([&] { check_and_free(made[1], 500000); });
    check_and_free(made[0], 1000);
    b.join();
  }
}

// An object that outlives the thread's lists: thread_locals are destroyed in reverse order of their construction.
TEST(ObjectPool, ServesAThreadThatIsEnding) {
  struct Late {
    std::unique_ptr<Small> object;
    ~Late() {
      object.reset();
      EXPECT_EQ(std::make_unique<Small>()->value, 7);
    }
  };
  std::thread([] {
    static thread_local Late late;  // before the lists, so destroyed after them
    EXPECT_EQ(late.object, nullptr);
    std::make_unique<Small>().reset();
    late.object = std::make_unique<Small>();
  }).join();
}

using Pointers = InlineVector<std::shared_ptr<int>, 2>;

TEST(InlineVector, KeepsItsElementsInsideAndBeyond) {
  const auto one = std::make_shared<int>(1);
  Pointers list;
  EXPECT_TRUE(list.empty());
  for (std::size_t i = 0; i < 7; ++i) {
    list.push_back(one);
    EXPECT_EQ(list.size(), i + 1);
    EXPECT_EQ(one.use_count(), static_cast<long>(i) + 2);
  }
  for (const auto& element : list) EXPECT_EQ(element, one);
  list.clear();
  EXPECT_EQ(one.use_count(), 1);
  list.extend(5);
  EXPECT_EQ(list.size(), 5U);
  list.extend(3);
  EXPECT_EQ(list.size(), 5U);
  for (const auto& element : list) EXPECT_EQ(element, nullptr);
}

TEST(InlineVector, MovesItsElements) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 9U}) {
    const auto one = std::make_shared<int>(1);
    Pointers from;
    for (std::size_t i = 0; i < count; ++i) from.push_back(one);
    Pointers to = std::move(from);
    EXPECT_EQ(from.size(), 0U);  // NOLINT(bugprone-use-after-move): what it promises
    EXPECT_EQ(to.size(), count);
    Pointers other;
    other.push_back(std::make_shared<int>(2));
    other = std::move(to);
    EXPECT_EQ(other.size(), count);
    EXPECT_EQ(one.use_count(), static_cast<long>(count) + 1);
    from.push_back(one);
    EXPECT_EQ(from[0], one);
  }
}

}  // namespace
}  // namespace ddp::core
