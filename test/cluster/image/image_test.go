package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompleteName(t *testing.T) {
	for short, complete := range map[string]string{
		"busybox":                        "docker.io/library/busybox:latest",
		"busybox:1.35":                   "docker.io/library/busybox:1.35",
		"docker.io/busybox:1.35":         "docker.io/library/busybox:1.35",
		"docker.io/library/busybox:1.35": "docker.io/library/busybox:1.35",
		"someone/thing:v1":               "docker.io/someone/thing:v1",
		"ghcr.io/someone/thing":          "ghcr.io/someone/thing:latest",
		"localhost:5000/thing":           "localhost:5000/thing:latest",
		"localhost/thing:v2":             "localhost/thing:v2",
	} {
		require.Equal(t, complete, completeName(short), short)
	}
}

func TestWriteIsReproducible(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte("#!/bin/sh\n"), 0o755))
	spec := Spec{
		Tags:       []string{"example.com/thing:v1", "example.com/thing:v2"},
		Entrypoint: []string{"/program"},
		Entries: []Entry{
			{Path: "/program", Source: source},
			{Path: "/etc/passwd", Data: []byte("root:x:0:0::/:/bin/sh\n")},
			Dir("/tmp", 0o777|os.ModeSticky),
		},
	}
	first, second := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	require.NoError(t, Write(first, spec))
	require.NoError(t, os.Chtimes(source, epoch, epoch))
	require.NoError(t, Write(second, spec))
	require.Equal(t, digest(t, first), digest(t, second))

	members := members(t, first)
	var manifests []manifest
	require.NoError(t, json.Unmarshal(members["manifest.json"], &manifests))
	require.Len(t, manifests, 1)
	require.Equal(t, spec.Tags, manifests[0].RepoTags)
	var settings config
	require.NoError(t, json.Unmarshal(members[manifests[0].Config], &settings))
	require.Equal(t, []string{"/program"}, settings.Config.Entrypoint)
	require.Equal(t, []string{"PATH=" + DefaultPath}, settings.Config.Env)
	require.Equal(t, []string{"sha256:" + sha256Hex(members[manifests[0].Layers[0]])}, settings.RootFS.DiffIDs)
}

func TestWriteFailures(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tar")
	for what, test := range map[string]struct {
		spec Spec
		want string
	}{
		"no tag":        {Spec{}, "at least one tag"},
		"bad tag":       {Spec{Tags: []string{"UPPER:v1"}}, `tag "UPPER:v1"`},
		"relative path": {Spec{Tags: []string{"a:b"}, Entries: []Entry{{Path: "x"}}}, "must be absolute"},
		"no source":     {Spec{Tags: []string{"a:b"}, Entries: []Entry{{Path: "/x", Source: "/no/such"}}}, "/no/such"},
		"file as parent": {Spec{Tags: []string{"a:b"}, Entries: []Entry{
			{Path: "/x", Data: []byte("x")}, {Path: "/x/y", Data: []byte("y")},
		}}, "is not a folder"},
	} {
		t.Run(what, func(t *testing.T) {
			require.ErrorContains(t, Write(out, test.spec), test.want)
			require.NoFileExists(t, out)
		})
	}
}

func TestLayer(t *testing.T) {
	var buffer bytes.Buffer
	require.NoError(t, writeLayer(&buffer, []Entry{
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

func digest(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return sha256Hex(content)
}

func members(t *testing.T, file string) map[string][]byte {
	t.Helper()
	archive, err := os.Open(file)
	require.NoError(t, err)
	defer archive.Close()
	members := map[string][]byte{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		require.NoError(t, err)
		members[header.Name], err = io.ReadAll(reader)
		require.NoError(t, err)
	}
}
