package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

const (
	podA = "3f0f0d6e-52f4-4c4b-9a0e-6d3b0f2f0a11"
	podB = "11111111-2222-3333-4444-555555555555"
)

// The groups of pods by cgroup driver and container runtime.
func TestPodGroup(t *testing.T) {
	for group, want := range map[string]string{
		"/kubepods/besteffort/pod" + podA + "/0123": "/kubepods/besteffort/pod" + podA,
		"/kubepods/pod" + podA:                      "/kubepods/pod" + podA,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice/cri-containerd-01.scope": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice",
		"/kubepods.slice/kubepods-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice/crio-01.scope/container":                                    "/kubepods.slice/kubepods-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice",
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice/c":                            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice",
		"/kubepods/pod" + podA + "/c/pod" + podB: "/kubepods/pod" + podA,
		"/system.slice/podman.service":           "",
		"/machine.slice/podman":                  "",
		"/":                                      "",
		"":                                       "",
	} {
		pod, uid := PodGroup(group)
		assert.Equal(t, want, pod, group)
		assert.Equal(t, want != "", uid == podA, group)
	}
}

func TestPodGroups(t *testing.T) {
	root := t.TempDir()
	for _, group := range []string{
		"kubepods/besteffort/pod" + podA + "/c", "system.slice/podman",
		// A container makes groups below its own.
		"kubepods/besteffort/pod" + podA + "/c/pod" + podB,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, group), 0o750))
	}
	found, err := PodGroups(root)
	require.NoError(t, err)
	assert.Equal(t, map[types.UID]string{podA: filepath.Join(root, "kubepods/besteffort/pod"+podA)}, found)
	_, err = PodGroups(filepath.Join(root, "none"))
	require.ErrorContains(t, err, "look for the control groups of pods")
}
