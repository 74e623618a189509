// Operations that are enqueued, in what order they act on memory, and when they do so in virtual time.
//
// Two things that know nothing of each other:
// - Effects happen as late as possible: only when something forces an operation, and then it and what it
// waits
//   for, in an order that the seed picks among what is ready. (Some seeds also run ready operations that
//   nothing needs yet.)
// - Times are the earliest possible and do not depend on the seed: in the order of the calls, each operation
//   takes the first gap of its engine after all that it waits for. A kernel's time is known once it ran, so
//   times follow when all earlier operations are done.
//
// Not thread-safe: the driver's lock is held, except while a host function runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "operation.h"
#include "timeline.h"
#include "trace.h"

namespace weightpress::cuda_driver {

class Scheduler {
 public:
  /// `on_failure` is called, with the lock held, when an operation fails; it cancels the context.
  Scheduler(std::mutex& driver_mutex, std::uint64_t seed, std::uint32_t eager_percent, Trace& trace,
            std::function<void(const Operation&, const Failure&)> on_failure);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Puts an operation after others. `after_host` may be null.
  OperationPtr enqueue(Operation operation, std::vector<OperationPtr> waits_for, OperationPtr after_host);
  /// The thread whose last wait was `before` (or null) waits for an operation: what it calls next comes after
  /// that in virtual time. Does not force it.
  OperationPtr host_wait(const OperationPtr& before, const OperationPtr& operation);

  void force(const OperationPtr& operation);
  void force_context(std::uint64_t context);
  void force_all();
  /// What a query sees: whether an operation is over. For a while it may be told to wait; after
  /// kMostQueries it is forced.
  bool poll(const OperationPtr& operation);
  static constexpr std::uint32_t kMostQueries = 8;

  /// Nothing of a context that is pending will run.
  void cancel(std::uint64_t context);
  /// All that was enqueued before an operation is run, so that its times are known.
  void force_times(const OperationPtr& operation);
  bool has_pending_host_functions() const { return num_host_functions_ != 0; }
  void force_host_functions();

  /// The process ends: what was enqueued is run for the trace's sake, except what touches memory that may be
  /// gone: kernels too if there is such memory.
  void finish(bool has_program_memory);

  /// Until no thread is in force() any more.
  void wait_until_idle();

  std::uint64_t random() { return random_(); }
  std::uint64_t seed() const { return seed_; }

 private:
  void force(const std::vector<OperationPtr>& targets);
  static void mark(const std::vector<OperationPtr>& targets, std::uint64_t number);
  void run(const OperationPtr& operation);
  void end(const OperationPtr& operation, OperationState state);
  OperationPtr pick(std::uint64_t wanted_by);
  void run_eagerly();
  void resolve_times();
  std::vector<OperationPtr> unfinished(const std::function<bool(const Operation&)>& which) const;
  bool chance(std::uint32_t percent) { return random_() % 100 < percent; }

  std::mutex& mutex_;
  std::condition_variable_any changed_;
  const std::uint64_t seed_;
  const std::uint32_t eager_percent_;
  std::uint32_t extra_percent_ = 0;  // of picks that go to what nothing needs yet
  std::mt19937_64 random_;
  Trace& trace_;
  const std::function<void(const Operation&, const Failure&)> on_failure_;
  Timeline timeline_;
  std::deque<OperationPtr> untimed_;  // by sequence
  std::vector<OperationPtr> ready_;   // pending, all that they wait for is done; by no order
  std::uint64_t next_sequence_ = 1, num_forces_ = 0;
  std::uint64_t num_host_functions_ = 0;  // not over
  std::uint64_t num_active_forces_ = 0;
  std::uint64_t num_unlocks_ = 0;  // how often the lock was given up
};

}  // namespace weightpress::cuda_driver
