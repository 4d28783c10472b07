package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
)

// The release of a cluster has everything switched on that does not exclude anything else: the
// values of all demos, as with `make demo`, and those of test/e2e/values.yaml (test/e2e-test.sh).
// These tests need others, on clusters of their own. Clusters without a feature gate have the
// chart's defaults.
var needs = map[string][]string{
	"TestMigrations":        {fileText(migrateFolder + "/values.yaml")},
	"TestMigrations/reboot": {fileText(migrateFolder + "/values.yaml"), "controller: {reboot: IfRequired}"},
}

// commonValues are documents of which a later one overrides those before it.
func commonValues() []string {
	var texts []string
	for _, file := range slices.Concat([]string{repository + "/demo/values.yaml"}, settingsFiles(), []string{"values.yaml"}) {
		texts = append(texts, fileText(file))
	}
	return texts
}

// settingsFiles are those of all demos.
func settingsFiles() []string {
	files, _ := filepath.Glob(settingsFile("*")) // the pattern is valid
	return files
}

// settingsFile is what the README of a demo upgrades the release with.
func settingsFile(demo string) string {
	return filepath.Join(repository, "demo", demo, "settings", "values.yaml")
}

func fileText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "missing: " + err.Error() // the chart refuses it
	}
	return string(text)
}

// needed are the values of a test or of the test that it is a part of.
func needed(t *testing.T, test string) map[string]any {
	t.Helper()
	for {
		if texts, ok := needs[test]; ok {
			return merged(t, texts)
		}
		end := strings.LastIndex(test, "/")
		if end < 0 {
			return merged(t, commonValues())
		}
		test = test[:end]
	}
}

// merged are values as Helm merges them.
func merged(t *testing.T, texts []string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		values := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &values), text)
		merge(all, values)
	}
	return all
}

func merge(into, values map[string]any) {
	for key, value := range values {
		have, isMap := into[key].(map[string]any)
		if more, ok := value.(map[string]any); ok && isMap {
			merge(have, more)
		} else {
			into[key] = value
		}
	}
}

// releaseValues are those that the release was installed or upgraded with last. Helm keeps them in
// Secrets, one for each revision.
func (s *suite) releaseValues() map[string]any {
	s.t.Helper()
	revisions, err := s.client.CoreV1().Secrets(pluginNamespace).List(s.ctx, metav1.ListOptions{LabelSelector: "owner=helm,name=" + release})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, revisions.Items, "the chart is not installed")
	last := slices.MaxFunc(revisions.Items, func(a, b corev1.Secret) int {
		return cmp.Compare(version(&a), version(&b))
	})
	packed, err := base64.StdEncoding.DecodeString(string(last.Data["release"]))
	require.NoError(s.t, err)
	text, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(s.t, err)
	var has struct {
		Config map[string]any `json:"config"`
	}
	require.NoError(s.t, json.NewDecoder(text).Decode(&has))
	return has.Config
}

// version is the number of a revision of a release.
func version(s *corev1.Secret) int {
	n, _ := strconv.Atoi(s.Labels["version"]) // 0, before all others, if it is not Helm's
	return n
}

// useValues gives the release the values that the test needs, and no others.
func (s *suite) useValues() {
	s.t.Helper()
	have, want := s.releaseValues(), needed(s.t, s.t.Name())
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
	s.t.Logf("%5.1fs the release has the values %s", time.Since(began).Seconds(), text)
}

// set upgrades the release with values in addition to those that it has. In the lab, programs do not
// take notice, and the values last until the test ends; on a cluster, until another test needs others.
func (s *suite) set(values string) {
	s.t.Helper()
	if s.lab != nil {
		s.t.Cleanup(func() { assert.NoError(s.t, s.lab.cluster.SetValues(s.ctx, "")) })
		require.NoError(s.t, s.lab.cluster.SetValues(s.ctx, values))
		return
	}
	s.helm("upgrade", release, chart, "--reuse-values", "--set", values, "--wait", "--timeout", "8m")
}

// waitTranslated waits until the API server applies the policies that translate the pods of a
// project, some time after they were created.
func (s *suite) waitTranslated(project string) {
	s.t.Helper()
	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"="+project)
	defer s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"-")
	s.waitTranslatedIn(s.namespace, project)
}

// waitTranslatedIn is waitTranslated for a namespace that has the project's label.
func (s *suite) waitTranslatedIn(namespace, project string) {
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
	s.eventually("pods of "+project+" are translated", func() (bool, string) {
		_, refused := s.client.CoreV1().Pods(namespace).Create(s.ctx, asks("0"), dryCreate)
		pod, err := s.client.CoreV1().Pods(namespace).Create(s.ctx, asks(good), dryCreate)
		return apierrors.IsInvalid(refused) && err == nil && len(pod.Spec.ResourceClaims) > 0, fmt.Sprint(refused, err)
	})
}

// publishesBy says whether whole GPUs of a node stand for the resources that the values name,
// and for no others: the new plugin has published them then.
func (s *suite) publishesBy(node string, values map[string]any) (ok bool, device string) {
	s.t.Helper()
	served, _ := values["extendedResources"].(map[string]any)
	for _, device := range s.published(node) {
		for _, vendor := range []string{"nvidia", "amd"} {
			of, _ := served[vendor].(map[string]any)
			if strings.Contains(device, "type:\n    string: gpu\n") && strings.Contains(device, "vendor:\n    string: "+vendor+"\n") &&
				strings.Contains(device, "string: "+vendor+".com/gpu\n") != (of["enabled"] == true) {
				return false, device
			}
		}
	}
	return true, ""
}

// The values with which a demo is tested include those with which its README upgrades the release.
func TestValuesOfDemos(t *testing.T) {
	files, err := filepath.Glob(settingsFile("*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		demo := filepath.Base(filepath.Dir(filepath.Dir(file)))
		have := needed(t, "TestDemos/"+demo)
		merge(have, merged(t, []string{fileText(file)}))
		require.Equal(t, needed(t, "TestDemos/"+demo), have, "another file contradicts demo/%s: add TestDemos/%s to the table", demo, demo)
	}
}
