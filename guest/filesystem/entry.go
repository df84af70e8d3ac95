// Package filesystem serves envd's filesystem.Filesystem and its HTTP routes for
// files. Every path is resolved as the named user, with that user's rights, in
// the users' mount namespace (see package asuser).
package filesystem

import (
	"os"
	"path/filepath"
	"syscall"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"
)

// entry describes a file as Lstat sees it; of a symbolic link, type and mode are
// those of its target.
func entry(path string, names users.Names) (*filesystem.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	return describe(path, info, names), nil
}

func describe(path string, info os.FileInfo, names users.Names) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{
		Name: valid(info.Name()), Path: valid(path), Type: fileType(info.Mode()), Size: info.Size(),
		Mode: uint32(info.Mode().Perm()), Permissions: info.Mode().String(),
		ModifiedTime: timestamp(info.ModTime()),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = valid(names.User(st.Uid)), valid(names.Group(st.Gid))
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target := path
		if t, err := filepath.EvalSymlinks(path); err == nil {
			target = t
		}
		target = valid(target)
		e.SymlinkTarget, e.IsSymlink = &target, true
		e.Type = filesystem.FileType_FILE_TYPE_SYMLINK
		if ti, err := os.Stat(path); err == nil {
			e.Type, e.Mode = fileType(ti.Mode()), uint32(ti.Mode().Perm())
		}
	}
	if info.Mode().IsRegular() {
		e.Metadata = readMetadata(path)
	}
	return e
}

func fileType(m os.FileMode) filesystem.FileType {
	switch {
	case m.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case m&os.ModeSymlink != 0:
		return filesystem.FileType_FILE_TYPE_SYMLINK
	case m.IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}
