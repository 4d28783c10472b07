package image

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Entry is one thing in an image: a file with the content of Source or Data, a
// folder (Mode has os.ModeDir) or a symbolic link (Link is set).
type Entry struct {
	// Path is where the thing lies in the image, absolute.
	Path string
	// Source is the host's file whose content it has.
	Source string
	// Data is its content where Source is empty.
	Data []byte
	// Link is where a symbolic link points.
	Link string
	// Mode is the permissions, and os.ModeDir for a folder. A file with mode
	// zero has those of Source, or 0644.
	Mode os.FileMode
}

// Dir returns the entry of a folder. Parents of files need none: they are
// added with mode 0755.
func Dir(path string, mode os.FileMode) Entry {
	return Entry{Path: path, Mode: mode | os.ModeDir}
}

// WriteTar writes entries and their missing parent folders as a tar, sorted
// by path. An entry that comes later replaces an earlier one of its path.
func WriteTar(w io.Writer, entries []Entry) error {
	complete, err := withParents(entries)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(complete)) {
		if err := writeEntry(out, complete[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Close()
}

func withParents(entries []Entry) (map[string]Entry, error) {
	complete := map[string]Entry{}
	for _, entry := range entries {
		if !path.IsAbs(entry.Path) {
			return nil, fmt.Errorf("%q: a path in an image must be absolute", entry.Path)
		}
		entry.Path = path.Clean(entry.Path)
		if entry.Path == "/" {
			continue
		}
		complete[entry.Path] = entry
		for dir := path.Dir(entry.Path); dir != "/"; dir = path.Dir(dir) {
			if _, found := complete[dir]; !found {
				complete[dir] = Dir(dir, 0o755)
			}
		}
	}
	for name, entry := range complete {
		parent, found := complete[path.Dir(name)]
		if found && !parent.Mode.IsDir() {
			return nil, fmt.Errorf("%q: its parent %q is not a folder in the image", entry.Path, parent.Path)
		}
	}
	return complete, nil
}

func writeEntry(out *tar.Writer, entry Entry) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(entry.Path, "/"),
		ModTime: epoch,
		Format:  tar.FormatPAX,
	}
	switch {
	case entry.Mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		header.Mode = tarMode(entry.Mode)
		return out.WriteHeader(header)
	case entry.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, entry.Link, 0o777
		return out.WriteHeader(header)
	case entry.Source != "":
		return writeFile(out, header, entry)
	}
	header.Typeflag, header.Size = tar.TypeReg, int64(len(entry.Data))
	header.Mode = tarMode(orMode(entry.Mode, 0o644))
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := out.Write(entry.Data)
	return err
}

func writeFile(out *tar.Writer, header *tar.Header, entry Entry) error {
	file, err := os.Open(entry.Source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("source %s is not a regular file", entry.Source)
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	header.Mode = tarMode(orMode(entry.Mode, info.Mode().Perm()))
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

func orMode(mode, otherwise os.FileMode) os.FileMode {
	if mode == 0 {
		return otherwise
	}
	return mode
}

// tarMode is the mode as a tar writes it: permissions and the sticky bit.
func tarMode(mode os.FileMode) int64 {
	bits := int64(mode.Perm())
	if mode&os.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
