package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
)

// The release of a cluster has the chart's default values, beside image and simulated GPUs.
// These tests need others. A test that follows on the same cluster upgrades the release if it
// needs other values than the one before, so test/e2e.sh runs these last, in this order.
var needs = map[string]string{
	"TestMigrations":        fileText(migrateFolder + "/values.yaml"),
	"TestMigrations/reboot": fileText(migrateFolder+"/values.yaml") + "controller: {reboot: Allowed}\n",
	"TestOtherGPUs":         memoryModes,

	"TestWhySituations":            explainsSoon,
	"TestDefragmentation":          defragments,
	"TestDefragmentationIsRefused": defragments,
	"TestWebPageOfTheCluster":      webPage,

	"TestDemos/sharing-mig":           settingsOf("sharing-mig"),
	"TestDemos/sharing-mps":           settingsOf("sharing-mps"),
	"TestDemos/translate-hami":        settingsOf("translate-hami"),
	"TestDemos/translate-nos":         settingsOf("translate-nos"),
	"TestDemos/translate-kai":         settingsOf("translate-kai"),
	"TestTranslatedPodsKeepTheirGPUs": settingsOf("translate-kai"),

	// The plugin restarts on these.
	"TestDemos/profile-cpx-nps4":                memoryModes,
	"TestTheNodeRebootedInTheMiddle":            memoryModes,
	"TestAGPUBusyWithAProcessOutsideKubernetes": memoryModes,
	"TestADriverReloadThatFails":                memoryModes,
	"TestADriverReloadThatFailsOnce":            memoryModes,
	"TestAMemoryModeThatGotLost":                memoryModes,
	"TestSoak":                                  memoryModes,

	"TestDemos/legacy-gpu":               nvidiaGPU,
	"TestDemos/profile-legacy-single":    nvidiaGPU,
	"TestDemos/profile-time-sliced":      nvidiaGPU,
	"TestAPodThatAsksByTheOldNameLeaves": nvidiaGPU,
	"TestReplicasOfPartitions":           nvidiaGPU,
	"TestSevenPartitions":                nvidiaGPU,
	"TestQuotaOfGPUs":                    nvidiaGPU,
	"TestDemos/sharing-nvidia-gpu":       settingsOf("sharing-nvidia-gpu"),
	"TestDemos/legacy-amd":               amdGPU,
}

const (
	memoryModes = "amd: {memoryModes: true}"
	nvidiaGPU   = "legacyResources: {nvidia: true}"
	amdGPU      = "legacyResources: {amd: true}"
)

func settingsFile(demo string) string {
	return filepath.Join(repository, "demo", demo, "settings", "values.yaml")
}

// settingsOf is what the README of a demo upgrades the release with.
func settingsOf(demo string) string { return fileText(settingsFile(demo)) }

func fileText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "missing: " + err.Error() // the chart refuses it
	}
	return string(text)
}

// needed are the values of a test or of the test that it is a part of.
func needed(test string) string {
	for {
		if values, ok := needs[test]; ok {
			return values
		}
		end := strings.LastIndex(test, "/")
		if end < 0 {
			return ""
		}
		test = test[:end]
	}
}

// useValues gives the release the values that the test needs, and no others.
func (s *suite) useValues() {
	s.t.Helper()
	have, want := map[string]any{}, map[string]any{}
	require.NoError(s.t, yaml.Unmarshal([]byte(s.helm("get", "values", release, "-o", "yaml")), &have))
	require.NoError(s.t, yaml.Unmarshal([]byte(needed(s.t.Name())), &want))
	maps.Copy(want, map[string]any{"image": have["image"], "simulate": have["simulate"]})
	if reflect.DeepEqual(have, want) {
		return
	}
	text, err := yaml.Marshal(want)
	require.NoError(s.t, err)
	file := filepath.Join(s.t.TempDir(), "values.yaml")
	require.NoError(s.t, os.WriteFile(file, text, 0o600))
	began := time.Now()
	s.helm("upgrade", release, chart, "--reset-values", "--values", file, "--wait", "--timeout", "8m")
	require.NoError(s.t, s.rolledOut())
	for _, node := range s.nodes {
		s.eventually(node+" publishes by these values", func() (bool, string) { return s.publishesBy(node, want) })
		s.settled(node)
	}
	translate, _ := want["translate"].(map[string]any)
	for project, on := range translate {
		if on == true {
			s.waitTranslated(project)
		}
	}
	s.t.Logf("%5.1fs the release has the values %q", time.Since(began).Seconds(), needed(s.t.Name()))
}

// set upgrades the release with values in addition to those that it has.
func (s *suite) set(values string) {
	s.t.Helper()
	s.helm("upgrade", release, chart, "--reuse-values", "--set", values, "--wait", "--timeout", "8m")
}

// waitTranslated waits until the API server applies the policies that translate the pods of a
// project, some time after they were created.
func (s *suite) waitTranslated(project string) {
	s.t.Helper()
	asks := func(amount string) *corev1.Pod {
		pod := newPod("translated")
		switch project {
		case "kai":
			pod.Annotations = map[string]string{"gpu-fraction": amount}
		case "hami":
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpumem": resource.MustParse(amount)}
		case "nos":
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName("nvidia.com/gpu-" + amount + "gb"): resource.MustParse("1")}
		}
		return pod
	}
	good := map[string]string{"kai": "0.5", "hami": "1", "nos": "1"}[project]
	require.NotEmpty(s.t, good, project)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"="+project)
	defer s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"-")
	s.eventually("pods of "+project+" are translated", func() (bool, string) {
		_, refused := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, asks("0"), dry)
		pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, asks(good), dry)
		return apierrors.IsInvalid(refused) && err == nil && len(pod.Spec.ResourceClaims) > 0, fmt.Sprint(refused, err)
	})
}

// publishesBy says whether whole GPUs of a node stand for the resources that the values name,
// and for no others: the new plugin has published them then.
func (s *suite) publishesBy(node string, values map[string]any) (ok bool, device string) {
	s.t.Helper()
	legacy, _ := values["legacyResources"].(map[string]any)
	for _, device := range s.published(node) {
		for _, vendor := range []string{"nvidia", "amd"} {
			if strings.Contains(device, "type:\n    string: gpu\n") && strings.Contains(device, "vendor:\n    string: "+vendor+"\n") &&
				strings.Contains(device, "string: "+vendor+".com/gpu\n") != (legacy[vendor] == true) {
				return false, device
			}
		}
	}
	return true, ""
}

// A demo whose README upgrades the release is tested with these values.
func TestValuesOfDemos(t *testing.T) {
	files, err := filepath.Glob(settingsFile("*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		demo := filepath.Base(filepath.Dir(filepath.Dir(file)))
		require.Equal(t, string(text), needs["TestDemos/"+demo], "add TestDemos/%s to the table", demo)
	}
}
