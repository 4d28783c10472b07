package debian

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/tranche-dev/tranche/release/image"
)

// Unpack returns the loader, the libraries, the copyright file and the texts of licences of a package.
func Unpack(deb []byte) ([]image.Entry, error) {
	data, err := member(deb, "data.tar.xz")
	if err != nil {
		return nil, err
	}
	unpacked, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("data.tar.xz: %w", err)
	}
	var entries []image.Entry
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("data.tar.xz: %w", err)
		}
		name := path.Join("/", header.Name)
		if !wanted(name) {
			continue
		}
		switch header.Typeflag {
		case tar.TypeSymlink:
			entries = append(entries, image.Entry{Path: name, Link: header.Linkname})
		case tar.TypeReg:
			content, err := io.ReadAll(files)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			entries = append(entries, image.Entry{Path: name, Data: content, Mode: header.FileInfo().Mode().Perm()})
		}
	}
}

// wanted leaves out conversions of character sets and documentation.
func wanted(name string) bool {
	return strings.HasPrefix(name, "/lib/") || strings.HasPrefix(name, "/lib64/") ||
		path.Base(name) == "copyright" || strings.HasPrefix(name, "/usr/share/common-licenses/")
}

// member finds a file in the ar archive that a package is: a line for the whole, and
// for each file a header of 60 bytes, the content, and a byte to an even length.
func member(deb []byte, name string) ([]byte, error) {
	const magic, headerSize = "!<arch>\n", 60
	rest, ok := bytes.CutPrefix(deb, []byte(magic))
	for ok && len(rest) >= headerSize {
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || headerSize+size > len(rest) {
			break
		}
		if strings.TrimRight(string(rest[:16]), " /") == name {
			return rest[headerSize : headerSize+size], nil
		}
		rest = rest[min(len(rest), headerSize+size+size%2):]
	}
	return nil, fmt.Errorf("the Debian package contains no %s", name)
}
