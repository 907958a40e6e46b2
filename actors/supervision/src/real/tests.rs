use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::ports::offload;

#[test]
fn files_and_directories_are_private_and_positions_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/b/c");
    RealDisk.create_dir_all(&dir).unwrap();
    RealDisk.create_dir_all(&dir).unwrap();
    let path = dir.join("file");
    let file = RealDisk.open(&path, Open::CreateNew).unwrap();
    assert!(RealDisk.open(&path, Open::CreateNew).is_err());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));

    file.write_at(b"world", 6).unwrap();
    file.write_at(b"hello ", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(RealDisk.read(&path).unwrap(), b"hello world");
    let mut part = [0; 8];
    assert_eq!(file.read_at(&mut part, 6).unwrap(), 5);
    file.set_length(16).unwrap();
    assert_eq!(file.length().unwrap(), 16);

    let before = RealDisk.stat(&path).unwrap();
    assert_eq!((before.length, before.directory), (16, false));
    RealDisk.rename(&path, &dir.join("moved")).unwrap();
    RealDisk.sync_dir(&dir).unwrap();
    RealDisk.sync_fs(&dir).unwrap();
    assert_eq!(RealDisk.list(&dir).unwrap(), [dir.join("moved")]);
    assert_eq!(RealDisk.stat(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    RealDisk.remove(&dir.join("moved")).unwrap();
    assert!(RealDisk.list(&dir).unwrap().is_empty());
}

#[test]
fn a_new_name_is_taken_once() {
    let root = tempfile::tempdir().unwrap();
    let [first, second, name] = ["first", "second", "name"].map(|name| root.path().join(name));
    for path in [&first, &second] {
        std::fs::write(path, path.to_str().unwrap()).unwrap();
    }
    RealDisk.rename_new(&first, &name).unwrap();
    assert_eq!(RealDisk.rename_new(&second, &name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(RealDisk.list(root.path()).unwrap(), [name.clone(), second]);
    assert_eq!(std::fs::read_to_string(&name).unwrap(), first.to_str().unwrap());
}

#[test]
fn a_panic_in_a_job_ends_the_job_only() {
    let pool = BlockingPool::new(1, &KernelMetrics::default()).unwrap();
    let broken = offload(&pool, || -> u32 { panic!("boom") });
    let fine = offload(&pool, || 7);
    assert!(broken.blocking_recv().is_err());
    assert_eq!(fine.blocking_recv(), Ok(7));
}

#[test]
fn ids_are_ordered_and_random_numbers_differ() {
    let (a, b) = (RealIds.uuid_v7(), RealIds.uuid_v7());
    assert!(a < b);
    assert_ne!(RealIds.random(), RealIds.random());
}

#[test]
fn links_pipes_and_directories_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "key").unwrap();
    let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [&link, &pipe, &dir.path().to_owned()] {
        for how in [Open::Read, Open::Write, Open::Create] {
            assert!(RealDisk.open(path, how).is_err(), "{how:?} {}", path.display());
        }
    }
    assert_eq!(RealDisk.open(&link, Open::Create).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "key");
}

#[test]
fn what_is_read_inside_of_a_directory_lies_there_itself() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
    for directory in [inside.join("memory"), outside.clone()] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(inside.join("memory/a"), "mine").unwrap();
    std::fs::write(outside.join("a"), "secret").unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink(outside.join("a"), inside.join("memory/b")).unwrap();
    let file = RealDisk.open_inside(&inside, Path::new("memory/a"), Open::Read).unwrap();
    let mut bytes = [0; 4];
    assert_eq!((file.read_at(&mut bytes, 0).unwrap(), &bytes), (4, b"mine"));
    for below in ["link/a", "memory/b", "memory", "../outside/a", "memory/../../outside/a", "/etc/passwd", "", "c"] {
        for how in [Open::Read, Open::Create] {
            let is_new = how == Open::Create && below == "c";
            assert_eq!(RealDisk.open_inside(&inside, Path::new(below), how).is_ok(), is_new, "{below}");
        }
    }
    symlink(&inside, root.path().join("way")).unwrap();
    assert!(
        RealDisk.open_inside(&root.path().join("way"), Path::new("memory/a"), Open::Read).is_ok(),
        "the directory may be a link"
    );
}
