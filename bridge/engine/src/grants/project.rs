//! Which folder's rules hold in a folder.

use std::path::{Path, PathBuf};

/// The project that a folder belongs to: the real path of the nearest ancestor with a
/// `.git`, else of the folder itself. The home folder, what is above it, and `/` are nobody's
/// project by accident: a grant in one folder would hold in all below it.
pub fn project_root(cwd: &Path, home: Option<&Path>) -> PathBuf {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let cwd = real(cwd);
    let home = home.map(real);
    let too_wide = |root: &Path| {
        root.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(root))
    };
    cwd.ancestors()
        .find(|folder| folder.join(".git").exists())
        .filter(|root| !too_wide(root))
        .map_or_else(|| cwd.clone(), Path::to_owned)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#[expect(clippy::disallowed_methods, reason = "a test makes its own folders")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_folder_with_git_is_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("home/work/a/src")).unwrap();
        fs::create_dir_all(top.join("home/work/a/.git")).unwrap();
        // A worktree has a file there.
        fs::create_dir_all(top.join("home/work/b/src")).unwrap();
        fs::write(top.join("home/work/b/.git"), "gitdir: elsewhere\n").unwrap();
        let home = top.join("home");
        for name in ["a", "b"] {
            let root = home.join("work").join(name);
            assert_eq!(project_root(&root.join("src"), Some(&home)), root);
            assert_eq!(project_root(&root, Some(&home)), root);
        }
        let plain = home.join("work");
        assert_eq!(project_root(&plain, Some(&home)), plain);
    }

    #[test]
    fn a_home_under_git_is_not_the_project_of_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let work = top.join("home/work");
        fs::create_dir_all(&work).unwrap();
        for wide in ["home/.git", ".git"] {
            fs::create_dir_all(top.join(wide)).unwrap();
            let home = top.join("home");
            assert_eq!(project_root(&work, Some(&home)), work);
            assert_eq!(project_root(&home, Some(&home)), home);
            fs::remove_dir(top.join(wide)).unwrap();
        }
    }

    #[test]
    fn a_link_is_the_folder_that_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/.git")).unwrap();
        std::os::unix::fs::symlink(top.join("real"), top.join("link")).unwrap();
        assert_eq!(project_root(&top.join("link"), None), top.join("real"));
    }
}
