package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	vendor = "gpu.tranche.dev"
	class  = "claim"
	// Kind is the CDI kind of all devices of this driver.
	Kind = vendor + "/" + class

	filePrefix = vendor + "-" + class + "_"
	fileSuffix = ".json"

	// annotationRecord has a copy of the claim's ledger record, from which a lost record is
	// rebuilt.
	annotationRecord = vendor + "/record"
)

// folderMode lets the container runtime read the folder, whoever it runs as.
const folderMode = 0o755

// ErrDeleted says that the folder was removed on the host while it is mounted in the plugin's
// container. Only a restarted container, with a new mount, can write files again.
var ErrDeleted = errors.New("the folder was removed on the host and must be mounted again")

// Dir is the folder from which the container runtime reads CDI files.
type Dir struct{ path string }

// Open returns the folder, which it creates if it does not exist.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, folderMode); err != nil {
		return nil, fmt.Errorf("create the CDI folder: %w", err)
	}
	return &Dir{path: path}, nil
}

// Device is one device of a claim and what its containers get.
type Device struct {
	Name  string
	Edits *cdispecs.ContainerEdits
}

// DeviceID is the fully qualified CDI name of a claim's device. It contains the claim's UID, so
// that no runtime uses a cached device of another claim. The kubelet shows it in the pod's
// allocatedResourcesStatus, so the readable part comes first.
func DeviceID(uid types.UID, device string) string {
	return Kind + "=" + deviceName(uid, device)
}

func deviceName(uid types.UID, device string) string { return device + "_" + string(uid) }

// Write writes the file of a claim atomically. Every container that gets any of the devices gets
// the common edits.
func (d *Dir) Write(uid types.UID, record []byte, common *cdispecs.ContainerEdits, devices []Device) error {
	spec := &cdispecs.Spec{
		Kind:           Kind,
		Annotations:    map[string]string{annotationRecord: string(record)},
		ContainerEdits: *common,
	}
	for _, device := range devices {
		spec.Devices = append(spec.Devices, cdispecs.Device{
			Name:           deviceName(uid, device.Name),
			ContainerEdits: *device.Edits,
		})
	}
	version, err := cdispecs.MinimumRequiredVersion(spec)
	if err != nil {
		return fmt.Errorf("find the CDI version for the file of claim %s: %w", uid, err)
	}
	spec.Version = version
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the CDI file of claim %s: %w", uid, err)
	}
	// Somebody may have removed the folder since the start.
	if err := os.MkdirAll(d.path, folderMode); err != nil {
		return fmt.Errorf("create the CDI folder for the file of claim %s: %w", uid, err)
	}
	// The name of the temporary file begins with a dot and does not end in .json, so that
	// no runtime reads it.
	if err := renameio.WriteFile(d.file(uid), data, 0o644, renameio.WithTempDir(d.path)); err != nil {
		if d.isDeleted() {
			err = ErrDeleted
		}
		return fmt.Errorf("write the CDI file of claim %s to %s (is the disk full or read-only?): %w", uid, d.path, err)
	}
	return nil
}

// isDeleted reports whether the mounted folder was removed on the host.
func (d *Dir) isDeleted() bool {
	var stat unix.Stat_t
	return unix.Stat(d.path, &stat) == nil && stat.Nlink == 0
}

// Remove deletes the file of a claim. It is no error if there is none.
func (d *Dir) Remove(uid types.UID) error {
	if err := os.Remove(d.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the CDI file of claim %s: %w", uid, err)
	}
	return nil
}

// Exists reports whether there is a file for the claim.
func (d *Dir) Exists(uid types.UID) bool {
	_, err := os.Stat(d.file(uid))
	return err == nil
}

// Record returns the copy of the ledger record in the file of a claim.
func (d *Dir) Record(uid types.UID) ([]byte, error) {
	data, err := os.ReadFile(d.file(uid))
	if err != nil {
		return nil, fmt.Errorf("read the CDI file of claim %s: %w", uid, err)
	}
	var spec cdispecs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read the CDI file of claim %s: %w", uid, err)
	}
	record, ok := spec.Annotations[annotationRecord]
	if !ok {
		return nil, fmt.Errorf("the CDI file of claim %s has no annotation %s", uid, annotationRecord)
	}
	return []byte(record), nil
}

// List returns the UIDs of the claims that have a file. It is no error if the folder does not
// exist.
func (d *Dir) List() ([]types.UID, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the CDI files: %w", err)
	}
	var uids []types.UID
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix) {
			uids = append(uids, types.UID(strings.TrimSuffix(strings.TrimPrefix(name, filePrefix), fileSuffix)))
		}
	}
	return uids, nil
}

func (d *Dir) file(uid types.UID) string {
	return filepath.Join(d.path, filePrefix+string(uid)+fileSuffix)
}
