package cdi

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/test/golden"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "cdi"))
	require.NoError(t, err)
	return d
}

var common = &cdispecs.ContainerEdits{
	Env:    []string{"NVIDIA_VISIBLE_DEVICES=void"},
	Mounts: []*cdispecs.Mount{{HostPath: "/usr/lib/libcuda.so.1", ContainerPath: "/usr/lib/libcuda.so.1", Options: []string{"ro", "bind"}}},
}

func device(name, node string) Device {
	return Device{Name: name, Edits: &cdispecs.ContainerEdits{DeviceNodes: []*cdispecs.DeviceNode{{Path: node, Type: "c", Major: 195}}}}
}

func write(t *testing.T, d *Dir, uid string) {
	t.Helper()
	require.NoError(t, d.Write(types.UID(uid), []byte(`{"version":1}`), common, []Device{
		device("gpu-0000-01-00-0-mig-1g-10gb-4", "/dev/nvidia0"), device("gpu-0000-02-00-0", "/dev/nvidia1"),
	}))
}

func TestWrite(t *testing.T) {
	d := open(t)
	const uid = "7e9f5b0c-1111-2222-3333-444444444444"
	write(t, d, uid)
	path := filepath.Join(d.path, "gpu.tranche.dev-claim_"+uid+".json")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, got, "", "  "))
	pretty.WriteByte('\n')

	golden.Equal(t, "testdata/claim.json", pretty.String())

	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "the runtime can read it")
}

// The name that the kubelet is told is the one in the file.
func TestDeviceID(t *testing.T) {
	assert.Equal(t, "gpu.tranche.dev/claim=gpu-0000-01-00-0_uid-1", DeviceID("uid-1", "gpu-0000-01-00-0"))
	d := open(t)
	require.NoError(t, d.Write("uid-1", nil, common, []Device{device("gpu-0000-01-00-0", "/dev/nvidia0")}))
	data, err := os.ReadFile(d.file("uid-1"))
	require.NoError(t, err)
	var spec cdispecs.Spec
	require.NoError(t, json.Unmarshal(data, &spec))
	assert.Equal(t, DeviceID("uid-1", "gpu-0000-01-00-0"), spec.Kind+"="+spec.Devices[0].Name)
}

func TestRecord(t *testing.T) {
	d := open(t)
	write(t, d, "a")
	got, err := d.Record("a")
	require.NoError(t, err)
	assert.Equal(t, `{"version":1}`, string(got))

	_, err = d.Record("b")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(d.file("b"), []byte(`{"kind":"x"}`), 0o600))
	_, err = d.Record("b")
	require.EqualError(t, err, "the CDI file of claim b has no annotation gpu.tranche.dev/record")
	require.NoError(t, os.WriteFile(d.file("b"), []byte(`{`), 0o600))
	_, err = d.Record("b")
	require.ErrorContains(t, err, "read the CDI file of claim b")
}

func TestListExistsRemove(t *testing.T) {
	d := open(t)
	write(t, d, "a")
	write(t, d, "b")
	// Others use the folder, too.
	for _, name := range []string{"nvidia.yaml", "k8s.gpu.nvidia.com-claim_c.json", ".gpu.tranche.dev-claim_d.json123", "gpu.tranche.dev-claim_e.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.path, name), nil, 0o600))
	}
	uids, err := d.List()
	require.NoError(t, err)
	assert.Equal(t, []types.UID{"a", "b"}, uids)
	assert.True(t, d.Exists("a"))
	assert.False(t, d.Exists("c"))

	require.NoError(t, d.Remove("a"))
	require.NoError(t, d.Remove("a"), "a second time")
	assert.False(t, d.Exists("a"))
	require.NoError(t, os.RemoveAll(d.path))
	uids, err = d.List()
	require.NoError(t, err)
	assert.Empty(t, uids, "a folder that was removed has no files")
	require.NoError(t, os.WriteFile(d.path, nil, 0o600))
	_, err = d.List()
	require.ErrorContains(t, err, "list the CDI files")
	require.ErrorContains(t, d.Write("a", nil, common, nil), "create the CDI folder for the file of claim a")
	require.ErrorContains(t, d.Remove("a"), "remove the CDI file of claim a", "it may still be there")
}

func TestRemovedFolderIsMadeAgain(t *testing.T) {
	d := open(t)
	write(t, d, "a")
	require.NoError(t, os.RemoveAll(d.path))
	write(t, d, "b")
	uids, err := d.List()
	require.NoError(t, err)
	assert.Equal(t, []types.UID{"b"}, uids)
	info, err := os.Stat(d.path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "the runtime can read it")
}

// A container sees a folder of the host that is removed by way of its mount: nothing
// can be written there, and to make the folder again does not help.
func TestRemovedFolderOfTheHost(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	d := open(t)
	require.NoError(t, os.Mkdir(host, 0o755))
	if err := unix.Mount(host, d.path, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("a folder cannot be mounted (run as root): %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(d.path, unix.MNT_DETACH)) })
	write(t, d, "a")
	require.NoError(t, os.RemoveAll(host))
	err := d.Write("b", nil, common, nil)
	require.ErrorIs(t, err, ErrDeleted)
	require.ErrorContains(t, err, "write the CDI file of claim b to "+d.path)
}

// A file is replaced in one step: a runtime that has the old one open reads it
// to its end, and no name that it looks at is ever half written.
func TestWriteIsAtomic(t *testing.T) {
	d := open(t)
	write(t, d, "a")
	old, err := os.Open(d.file("a"))
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, d.Write("a", nil, common, nil))
	var spec cdispecs.Spec
	require.NoError(t, json.NewDecoder(old).Decode(&spec))
	assert.Len(t, spec.Devices, 2)
	entries, err := os.ReadDir(d.path)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file stays")
}

func TestWriteOnFullDisk(t *testing.T) {
	d := open(t)
	if err := unix.Mount("tmpfs", d.path, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("a small tmpfs cannot be mounted (run as root): %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(d.path, unix.MNT_DETACH)) })
	write(t, d, "a")
	require.NoError(t, os.WriteFile(filepath.Join(d.path, "filler"), make([]byte, 4096), 0o600))
	err := d.Write("b", nil, common, nil)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "write the CDI file of claim b to "+d.path+" (is the disk full or read-only?)")
	uids, err := d.List()
	require.NoError(t, err)
	assert.Equal(t, []types.UID{"a"}, uids)
	_, err = d.Record("a")
	require.NoError(t, err, "the others are whole")
	require.NoError(t, d.Remove("a"))
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(file)
	require.ErrorContains(t, err, "create the CDI folder")
}
