package build

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// Pack writes the installation into one archive, which Unpack takes on a
// machine without network and without Go.
func (d Dir) Pack(ctx context.Context, file string, progress func(string, ...any)) error {
	if missing := d.Missing(); len(missing) > 0 {
		return fmt.Errorf("not all parts are built, `cluster install` builds them: %s", strings.Join(missing, ", "))
	}
	progress("packing %s …", d)
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	defer os.Remove(out.Name())
	err = d.packTo(ctx, out)
	if err := errors.Join(err, out.Chmod(0o644), out.Close()); err != nil {
		return fmt.Errorf("pack into %s: %w", file, err)
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	info, err := os.Stat(file)
	if err == nil {
		progress("%s: %d MiB", file, info.Size()>>20)
	}
	return err
}

// packTo compresses with the xz program, which packs better and on all cores;
// to unpack needs no program. Large blocks save a sixth: the programs have
// much in common.
func (d Dir) packTo(ctx context.Context, out *os.File) error {
	if _, err := exec.LookPath("xz"); err != nil {
		return errors.New("the program xz is missing: install the package xz-utils")
	}
	compress := exec.CommandContext(ctx, "xz", "-T0", "-9", "--block-size=128MiB", "-c")
	compress.Stdout, compress.Stderr = out, os.Stderr
	in, err := compress.StdinPipe()
	if err != nil {
		return err
	}
	if err := compress.Start(); err != nil {
		return err
	}
	err = errors.Join(d.tarTo(in), in.Close())
	return errors.Join(err, compress.Wait())
}

// tarTo writes the files of all parts, each below the installation's key, so
// that an archive of other versions is noticed.
func (d Dir) tarTo(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, part := range parts() {
		for _, file := range part.files {
			if err := addFile(out, string(d), file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return out.Close()
}

func addFile(out *tar.Writer, dir, name string) error {
	file := filepath.Join(dir, name)
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Name: filepath.Join(key(), name), Mode: int64(info.Mode().Perm()), Typeflag: tar.TypeReg, Size: info.Size(),
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		header.Typeflag, header.Size = tar.TypeSymlink, 0
		if header.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		return out.WriteHeader(header)
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(out, content)
	return err
}

// Unpack installs what Pack has packed.
func (d Dir) Unpack(ctx context.Context, file string, progress func(string, ...any)) error {
	archive, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer archive.Close()
	progress("unpacking %s into %s …", file, d)
	reader, err := xz.NewReader(archive)
	if err != nil {
		return fmt.Errorf("unpack %s: it is no xz archive: %w", file, err)
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	unlock, err := d.lock(progress)
	if err != nil {
		return err
	}
	defer unlock()
	for members := tar.NewReader(reader); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = errors.Join(ctx.Err(), d.unpackMember(members, header))
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", file, err)
		}
	}
	if missing := d.Missing(); len(missing) > 0 {
		return fmt.Errorf("unpack %s: it lacks %s", file, strings.Join(missing, ", "))
	}
	progress("all parts are in %s", d)
	return nil
}

func (d Dir) unpackMember(content io.Reader, header *tar.Header) error {
	name, found := strings.CutPrefix(header.Name, key()+"/")
	if !found || !filepath.IsLocal(name) {
		return fmt.Errorf("%q does not belong to this version (%s): pack again with this program", header.Name, key())
	}
	target := filepath.Join(string(d), name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeSymlink {
		if filepath.Base(header.Linkname) != header.Linkname {
			return fmt.Errorf("%q links out of its folder", header.Name)
		}
		_ = os.Remove(target)
		return os.Symlink(header.Linkname, target)
	}
	temp, err := os.CreateTemp(filepath.Dir(target), ".unpack-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = io.Copy(temp, content)
	if err := errors.Join(err, temp.Chmod(os.FileMode(header.Mode)&os.ModePerm), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), target)
}
