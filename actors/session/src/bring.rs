//! A file of any of the three systems becomes a session. Blocks.

use std::io;
use std::path::Path;

use domain::exchange::single;
use domain::ids::SessionKey;
use jiff::tz::TimeZone;
use protocol::edit::EditError;
use protocol::transcripts::BroughtIn;
use supervision::ports::DiskFile;

use crate::new_file;
use crate::transcripts::Transcripts;

/// The largest file that is brought in.
const FILE_BYTES_MAX: u64 = 2 << 30;

// === impl Transcripts ===

impl Transcripts {
    pub(crate) fn bring(
        &self,
        file: &Path,
        key: Option<&SessionKey>,
        may: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError> {
        let failed = |why: String| EditError::Io(format!("{}: {why}", file.display()));
        let length = self.disk.stat(file).map_err(|error| failed(error.to_string()))?.length;
        if length > FILE_BYTES_MAX {
            return Err(failed(format!("has {length} bytes, more than {FILE_BYTES_MAX}")));
        }
        let bytes = self.disk.read(file).map_err(|error| failed(error.to_string()))?;
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let cwd = self.dir.parent().unwrap_or(&self.dir).to_string_lossy();
        let (key, made) = single::import(&bytes, stem, key, &TimeZone::system(), &cwd)
            .map_err(|why| EditError::NotASession { file: file.to_owned(), why })?;
        may(&key)?;
        self.disk.create_dir_all(&self.dir).map_err(|error| new_file::unwritten(&error, "the new transcript"))?;
        let write = |new: &dyn DiskFile| new.write_at(&made.bytes, 0);
        let written = new_file::make_transcript(&*self.disk, &*self.ids, &self.file_of(&key), write);
        written.map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                EditError::Exists(key.clone())
            } else {
                new_file::unwritten(&error, "the new transcript")
            }
        })?;
        self.list_new(&key);
        Ok(BroughtIn { key, file: file.to_owned(), messages: made.messages, remarks: made.remarks })
    }
}
