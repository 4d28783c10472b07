package debian

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/tranche-dev/tranche/release/image"
)

// deb is a package with an odd number of bytes before its data.
func deb(t *testing.T) []byte {
	t.Helper()
	var data bytes.Buffer
	packed, err := xz.NewWriter(&data)
	require.NoError(t, err)
	files := tar.NewWriter(packed)
	for _, header := range []*tar.Header{
		{Name: "./lib/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./lib/ld.so", Typeflag: tar.TypeReg, Mode: 0o755, Size: 2},
		{Name: "./lib64/ld.so", Typeflag: tar.TypeSymlink, Linkname: "/lib/ld.so"},
		{Name: "./usr/lib/gconv/A.so", Typeflag: tar.TypeReg, Size: 2},
		{Name: "./usr/share/doc/x/copyright", Typeflag: tar.TypeReg, Mode: 0o644, Size: 2},
		{Name: "./usr/share/common-licenses/GPL", Typeflag: tar.TypeSymlink, Linkname: "GPL-3"},
	} {
		require.NoError(t, files.WriteHeader(header))
		if header.Size > 0 {
			_, err := files.Write([]byte("ab"))
			require.NoError(t, err)
		}
	}
	require.NoError(t, files.Close())
	require.NoError(t, packed.Close())
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for name, content := range map[string][]byte{"odd": []byte("abc"), "data.tar.xz": data.Bytes()} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(content))
		out.Write(content)
		if len(content)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	entries, err := Unpack(deb(t))
	require.NoError(t, err)
	assert.Equal(t, []image.Entry{
		{Path: "/lib/ld.so", Data: []byte("ab"), Mode: 0o755},
		{Path: "/lib64/ld.so", Link: "/lib/ld.so"},
		{Path: "/usr/share/doc/x/copyright", Data: []byte("ab"), Mode: 0o644},
		{Path: "/usr/share/common-licenses/GPL", Link: "GPL-3"},
	}, entries)

	for what, broken := range map[string][]byte{"empty": nil, "text": []byte("<html>"), "cut": deb(t)[:80]} {
		_, err := Unpack(broken)
		require.ErrorContains(t, err, "no data.tar.xz", what)
	}
}

// A package in the cache that is not what it should be is not used.
func TestDownloadVerifies(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	old := mirrors
	t.Cleanup(func() { mirrors = old })
	mirrors = []string{"http://127.0.0.1:1/"}
	p := Package{Name: "x", Version: "1", Path: "x.deb", SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	file := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "tranche", "debian", p.SHA256+".deb")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))

	require.NoError(t, os.WriteFile(file, []byte("abc"), 0o600))
	content, err := p.Download(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "abc", string(content))

	require.NoError(t, os.WriteFile(file, []byte("abcd"), 0o600))
	_, err = p.Download(t.Context())
	require.ErrorContains(t, err, "download Debian package x 1")
}

func TestRuntime(t *testing.T) {
	for _, architecture := range []string{"amd64", "arm64"} {
		found, err := Runtime(architecture)
		require.NoError(t, err)
		assert.Len(t, found, 4)
		assert.Equal(t, "pkg:deb/debian/libc6@"+found[0].Version+"?arch="+architecture+"&distro=debian-12", found[0].PURL())
	}
	_, err := Runtime("riscv64")
	require.ErrorContains(t, err, "amd64 and arm64")
}
