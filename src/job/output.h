// The output of a job, a folder or one file: everything is written into OUT.partial, and OUT appears by one
// rename at the end. So OUT is always absent, old or complete.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/partial_folder.h"

namespace weightpress::job {

/// The path that `output` names, resolved as the kernel does (links, "..") except for its last component,
/// which need not exist. Throws Error: kUsage if there is no last component to create, kNotFound if the
/// folder above is missing.
std::filesystem::path resolve_output(const std::filesystem::path& output);

class Output {
 public:
  virtual ~Output() = default;

  /// Where a file of the output is written until finish().
  std::filesystem::path file(std::string_view name) const { return partial_->path() / name; }
  PartialFolder& partial() { return *partial_; }
  /// Names the job, for an output that is complete but for its name. Before finish().
  void set_job(std::string job) { job_ = std::move(job); }
  bool removed_remains() const { return partial_->removed_remains(); }
  /// Removes what was written so far. Before finish() only.
  void discard() { partial_->remove(); }

  /// OUT appears. Returns why an old output could not be deleted (the new one is in place then), or nothing.
  virtual std::string finish() = 0;

 protected:
  Output(std::filesystem::path output, bool force) : output_(std::move(output)), force_(force) {}

  std::filesystem::path output_;
  bool force_;
  std::string job_;
  std::unique_ptr<PartialFolder> partial_;
};

/// OUT.partial becomes OUT. An OUT that was there is exchanged with it and then deleted.
class OutputFolder final : public Output {
 public:
  /// `output`: from resolve_output(). Throws Error: kOutputExists if OUT is there (without force) or is not a
  /// plain folder that may be replaced, and what PartialFolder throws. Its run keeps a journal.
  OutputFolder(const std::filesystem::path& output, bool force);

  /// For an output that is no DF11 model and has no record to be known by. With force, a folder is replaced
  /// only if it holds nothing but files of these names, none of which is of a DF11 model.
  OutputFolder(const std::filesystem::path& output, bool force, std::vector<std::string> own_names);
  ~OutputFolder() override;

  std::string finish() override;

 private:
  void check_replaceable() const;
  /// A clause about a file that must not be lost; empty: there is none.
  std::string find_other_model() const;
  std::string exchange();

  const std::optional<std::vector<std::string>> own_names_;

  int old_lock_ = -1;  // of an OUT that is being replaced
};

/// The file of OUT.partial that has OUT's name becomes OUT; side files are moved beside it before.
class OutputFile final : public Output {
 public:
  /// A file beside OUT.
  struct SideFile {
    std::string name;
    /// It is the output's record (output_record.h): another record may be replaced.
    bool is_record = false;
    /// What it will hold, if that is known: one that is there with this content is not in the way.
    std::string content = {};
  };

  /// Side files must be written before finish() like OUT itself. Throws as OutputFolder does; also if
  /// something else is where a side file goes: without force, any other file but a record; with force, a
  /// config.json of a model that is not DF11.
  OutputFile(const std::filesystem::path& output, std::vector<SideFile> side_files, bool force,
             PartialFolder::Journaled journaled);

  std::string finish() override;

 private:
  void check_replaceable() const;

  std::vector<SideFile> side_files_;
};

}  // namespace weightpress::job
