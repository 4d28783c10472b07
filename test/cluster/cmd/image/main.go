// Command image writes a container image as a tar archive from files of this
// machine, without a registry and without a container engine.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/cluster/image"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		spec      image.Spec
		out       string
		files     []string
		dirs      []string
		links     []string
		libraries bool
	)
	cmd := &cobra.Command{
		Use:           "image --tag NAME --out FILE --file SRC=DST[:MODE] …",
		Short:         "Write a container image as a tar archive",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				return errors.New("--out is missing: the archive to write")
			}
			entries, err := entries(files, dirs, links, libraries)
			if err != nil {
				return err
			}
			spec.Entries = entries
			return image.Write(out, spec)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&spec.Tags, "tag", nil, "name of the image; may be repeated")
	flags.StringVar(&out, "out", "", "archive to write")
	flags.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "what a container runs; repeat for its arguments")
	flags.StringArrayVar(&spec.Command, "cmd", nil, "default arguments; may be repeated")
	flags.StringArrayVar(&spec.Env, "env", nil, "KEY=value; may be repeated")
	flags.StringVar(&spec.User, "user", "", "user, or user:group, that a container runs as (default root)")
	flags.StringVar(&spec.WorkingDir, "workdir", "", "folder in which a container starts")
	flags.StringArrayVar(&files, "file", nil, "SRC=DST[:MODE], a file to copy, or a folder with all that is in it; may be repeated")
	flags.StringArrayVar(&dirs, "dir", nil, "PATH[:MODE], a folder to make; may be repeated")
	flags.StringArrayVar(&links, "link", nil, "PATH=TARGET, a symbolic link; may be repeated")
	flags.BoolVar(&libraries, "libs", false, "add the loader and the shared libraries that the files need")
	return cmd
}

func entries(files, dirs, links []string, libraries bool) ([]image.Entry, error) {
	var all []image.Entry
	for _, dir := range dirs {
		path, mode, err := splitMode(dir)
		if err != nil {
			return nil, fmt.Errorf("--dir %s: %w", dir, err)
		}
		if mode == 0 {
			mode = 0o755
		}
		all = append(all, image.Dir(path, mode))
	}
	for _, file := range files {
		found, err := fileEntries(file, libraries)
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", file, err)
		}
		all = append(all, found...)
	}
	for _, link := range links {
		path, target, found := strings.Cut(link, "=")
		if !found {
			return nil, fmt.Errorf("--link %s: must be PATH=TARGET", link)
		}
		all = append(all, image.Entry{Path: path, Link: target})
	}
	return all, nil
}

// fileEntries are the entries for one --file: libraries first, so that a file
// given by name wins over the library of the same path.
func fileEntries(arg string, libraries bool) ([]image.Entry, error) {
	source, rest, found := strings.Cut(arg, "=")
	if !found {
		return nil, errors.New("must be SRC=DST[:MODE]")
	}
	target, mode, err := splitMode(rest)
	if err != nil {
		return nil, err
	}
	var all []image.Entry
	err = filepath.WalkDir(source, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		if libraries {
			needed, err := image.Libraries(path)
			if err != nil {
				return err
			}
			all = append(all, needed...)
		}
		all = append(all, image.Entry{Path: filepath.Join(target, relative), Source: path, Mode: mode})
		return nil
	})
	return all, err
}

func splitMode(arg string) (string, os.FileMode, error) {
	path, octal, found := strings.Cut(arg, ":")
	if !found {
		return path, 0, nil
	}
	mode, err := strconv.ParseUint(octal, 8, 12)
	if err != nil {
		return "", 0, fmt.Errorf("mode %q is not octal, such as 0755", octal)
	}
	return path, os.FileMode(mode) & os.ModePerm, nil
}
