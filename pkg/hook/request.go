package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

const (
	// Program is the name of the program.
	Program = "tranche-hook"
	// sockets matches the sockets of plugins in their folder. During a rolling update there are two.
	sockets = "hook-*.sock"
	// MaxRequest is the maximum length of a request, in bytes. A control group has a path of at most
	// 4096 (PATH_MAX).
	MaxRequest = 8 << 10
	maxName    = 256
)

// Socket returns the path of a plugin's socket in a folder; Sockets matches those of all plugins.
func Socket(folder, plugin string) string {
	return filepath.Join(folder, strings.ReplaceAll(sockets, "*", plugin))
}

// Sockets returns a pattern that matches the sockets of all plugins in a folder.
func Sockets(folder string) string { return filepath.Join(folder, sockets) }

// Request asks the plugin to limit the memory of a container's pod. It says nothing of amounts, which
// only the plugin knows.
type Request struct {
	// Claim is the UID of the claim, Device the key of its device.
	Claim  string `json:"claim"`
	Device string `json:"device"`
	// Group is the container's control group of cgroup v2, from the root of all.
	Group string `json:"group"`
}

// ParseRequest reads a request, and refuses one that this program would not send.
func ParseRequest(from io.Reader) (Request, error) {
	data, err := io.ReadAll(io.LimitReader(from, MaxRequest+1))
	if err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	if len(data) > MaxRequest {
		return Request{}, fmt.Errorf("the request is longer than %d bytes", MaxRequest)
	}
	var r Request
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	return r, r.check()
}

func (r Request) check() error {
	switch {
	case !isName(r.Claim):
		return fmt.Errorf("%.80q is not the UID of a claim", r.Claim)
	case !isName(r.Device):
		return fmt.Errorf("%.80q is not the name of a device", r.Device)
	case !path.IsAbs(r.Group) || r.Group == "/" || path.Clean(r.Group) != r.Group || strings.ContainsRune(r.Group, 0):
		return fmt.Errorf("%.80q is not the control group of a container", r.Group)
	}
	return nil
}

// isName reports whether a text can be a UID or a device: neither contains other characters.
func isName(text string) bool {
	return text != "" && len(text) <= maxName && strings.IndexFunc(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '.' && c != '_'
	}) < 0
}

// maxState limits what the runtime passes on, in bytes.
const maxState = 4 << 20

// processOf reads the process of a container from its state (OCI runtime specification, "State").
func processOf(state io.Reader) (int, error) {
	var s struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&s); err != nil {
		return 0, fmt.Errorf("read the container's state from the runtime: %w", err)
	}
	if s.PID <= 1 {
		return 0, fmt.Errorf("the runtime has passed a container without a process (pid is %d)", s.PID)
	}
	return s.PID, nil
}

// groupIn returns the control group of cgroup v2 in the content of /proc/<pid>/cgroup (cgroups(7)).
func groupIn(content []byte) (string, error) {
	for line := range bytes.Lines(content) {
		if group, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::")); ok {
			return string(group), nil
		}
	}
	return "", errors.New("the container has no control group of cgroup v2")
}
