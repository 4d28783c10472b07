package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteIsReproducible(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte("#!/bin/sh\n"), 0o755))
	spec := Spec{
		Entrypoint: []string{"/program"},
		Entries: []Entry{
			{Path: "/program", Source: source},
			{Path: "/etc/passwd", Data: []byte("root:x:0:0::/:/bin/sh\n")},
			Dir("/tmp", 0o777|os.ModeSticky),
		},
	}
	first, second := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	require.NoError(t, Write(first, spec, "docker.io/library/thing:v1"))
	require.NoError(t, os.Chtimes(source, epoch, epoch))
	require.NoError(t, Write(second, spec, "docker.io/library/thing:v1"))
	require.True(t, bytes.Equal(content(t, first), content(t, second)), "a second image differs")

	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(first) })
	require.NoError(t, err)
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"docker.io/library/thing:v1"}, manifest[0].RepoTags)
	image, err := tarball.ImageFromPath(first, nil)
	require.NoError(t, err)
	require.NoError(t, validate.Image(image))
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"/program"}, config.Config.Entrypoint)
	assert.Equal(t, []string{"PATH=" + DefaultPath}, config.Config.Env)
}

func TestWriteFailures(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tar")
	const tag = "example.com/a:b"
	for what, test := range map[string]struct {
		entries []Entry
		tag     string
		want    string
	}{
		"bad tag":       {nil, "example.com/UPPER:v1", "UPPER"},
		"no tag":        {nil, "example.com/name", "example.com/name"},
		"relative path": {[]Entry{{Path: "x"}}, tag, "must be absolute"},
		"no source":     {[]Entry{{Path: "/x", Source: "/no/such"}}, tag, "/no/such"},
		"file as parent": {[]Entry{
			{Path: "/x", Data: []byte("x")}, {Path: "/x/y", Data: []byte("y")},
		}, tag, "is not a folder"},
	} {
		t.Run(what, func(t *testing.T) {
			require.ErrorContains(t, Write(out, Spec{Entries: test.entries}, test.tag), test.want)
			require.NoFileExists(t, out)
		})
	}
}

func TestLayer(t *testing.T) {
	var buffer bytes.Buffer
	require.NoError(t, WriteTar(&buffer, []Entry{
		{Path: "/usr/bin/b", Data: []byte("old")},
		{Path: "/usr/bin/b", Data: []byte("new"), Mode: 0o700},
		{Path: "/usr/bin/a", Link: "b"},
		Dir("/tmp", 0o777|os.ModeSticky),
	}))
	type entry struct {
		name, link, data string
		mode             int64
	}
	var got []entry
	for reader := tar.NewReader(&buffer); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, header.ModTime.Equal(epoch))
		data, err := io.ReadAll(reader)
		require.NoError(t, err)
		got = append(got, entry{header.Name, header.Linkname, string(data), header.Mode})
	}
	require.Equal(t, []entry{
		{"tmp/", "", "", 0o1777},
		{"usr/", "", "", 0o755},
		{"usr/bin/", "", "", 0o755},
		{"usr/bin/a", "b", "", 0o777},
		{"usr/bin/b", "", "new", 0o700},
	}, got)
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}
