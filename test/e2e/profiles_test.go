package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// followProfile makes a node follow a profile of one rule, until the test ends.
func (s *suite) followProfile(node, name, rule string) {
	s.t.Helper()
	s.setProfile(name, rule)
	s.labelProfile(node, name)
}

// setProfile makes a profile of one rule, until the test ends.
func (s *suite) setProfile(name, rule string) {
	s.t.Helper()
	s.setProfileSpec(name, "{rules: ["+rule+"]}")
}

// setProfileSpec makes a profile, or changes it, until the test ends.
func (s *suite) setProfileSpec(name, spec string) {
	s.t.Helper()
	s.setObject(v1beta1.ProfileKind, name, spec)
}

// setObject makes an object of Tranche's API, or changes it, until the test ends.
func (s *suite) setObject(kind, name, spec string) {
	s.t.Helper()
	path := fmt.Sprintf("/apis/%s/%ss/%s", v1beta1.GroupVersion, strings.ToLower(kind), name)
	api := s.client.CoreV1().RESTClient()
	s.t.Cleanup(func() {
		err := api.Delete().AbsPath(path).Do(s.ctx).Error()
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
		s.eventually(kind+" "+name+" is gone", func() (bool, string) {
			return apierrors.IsNotFound(api.Get().AbsPath(path).Do(s.ctx).Error()), "it is still there"
		})
	})
	err := api.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "e2e").Param("force", "true").Param("fieldValidation", "Strict").
		Body([]byte(objectText(kind, name, spec))).Do(s.ctx).Error()
	require.NoError(s.t, err, "%s %s", kind, name)
}

func objectText(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", v1beta1.GroupVersion, kind, name, spec)
}

// objectFile writes an object of Tranche's API into a file.
func (s *suite) objectFile(kind, name, spec string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), name+".yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(objectText(kind, name, spec)), 0o600))
	return file
}

// labelProfile gives a node the label of a profile, until the test ends: then it takes
// the label away, and waits until the node publishes what it did before.
func (s *suite) labelProfile(node, name string) {
	s.t.Helper()
	s.unlabelAtEnd(node)
	s.setProfileLabel(node, name)
}

// published is what a node publishes, as far as settings change it.
func (s *suite) published(node string) (lines []string) {
	s.t.Helper()
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			d.Taints = nil
			text, err := yaml.Marshal(d)
			require.NoError(s.t, err)
			lines = append(lines, string(text))
		}
	}
	slices.Sort(lines)
	return lines
}

// settled is what a node publishes once its plugin has found out whether the shares of
// NVIDIA GPUs can be limited. It tries that after its start, and again after each load of
// the driver.
func (s *suite) settled(node string) (lines []string) {
	s.t.Helper()
	if s.lab != nil {
		return s.published(node) // nothing can limit shares there
	}
	s.eventually(node+" knows the limits of its shares", func() (bool, string) {
		lines = s.published(node)
		unlimited := slices.ContainsFunc(lines, func(device string) bool {
			return strings.Contains(device, "string: share") && strings.Contains(device, "string: nvidia") && !strings.Contains(device, "computePercent:") &&
				!strings.Contains(device, "string: kernel")
		})
		return !unlimited, strings.Join(lines, "\n")
	})
	return lines
}

// followDemoProfile makes node-a follow the profile that a demo has in its settings, if
// there is one.
func (s *suite) followDemoProfile(demo string) {
	s.t.Helper()
	text, err := os.ReadFile(settingsFile(demo))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(s.t, err)
	var values struct {
		Profiles map[string]any `json:"partitionProfiles"`
	}
	require.NoError(s.t, yaml.Unmarshal(text, &values))
	require.LessOrEqual(s.t, len(values.Profiles), 1)
	for name := range values.Profiles {
		s.follow(nodeA, name)
	}
}

// profileIs selects partitions, or shares of them, by their profile.
func profileIs(profile string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.attributes["gpu.tranche.dev"].?profile.orValue("") == %q`, profile),
	}}}
}
