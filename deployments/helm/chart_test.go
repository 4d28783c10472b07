// Package helm_test renders the chart as helm install would and judges what
// comes out. It needs the helm binary: on the PATH or named by $HELM.
package helm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tranche-dev/tranche/test/golden"
)

const (
	chart       = "tranche"
	namespace   = "tranche-system"
	kubeVersion = "1.37.1"
)

// withHooks is no argument of helm's: it makes render keep what is created only
// to uninstall.
const withHooks = "--with-hooks"

// helm runs the helm binary and returns what it printed, or skips the test
// where there is none.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	binary := os.Getenv("HELM")
	if binary == "" {
		var lookErr error
		if binary, lookErr = exec.LookPath("helm"); lookErr != nil {
			t.Skip("left out: no helm on the PATH, and $HELM does not name one " +
				"(go install helm.sh/helm/v4/cmd/helm@v4.3.2)")
		}
	}
	key := strings.Join(args, " ")
	if known, ok := printed[key]; ok {
		return known, "", nil
	}
	// Nothing of the user's own settings.
	home := t.TempDir()
	var out, errOut bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null", "GOGC=off")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err = cmd.Run(); err == nil && errOut.Len() == 0 {
		printed[key] = out.String()
	}
	return out.String(), errOut.String(), err
}

// printed is what helm printed, by arguments. Files that arguments name do not change during a run
// of the tests. No test runs beside another.
var printed = map[string]string{}

// render returns the chart's objects as YAML documents, in helm's order.
func render(t *testing.T, chart string, args ...string) []string {
	t.Helper()
	args = append([]string{"template", "tranche", chart, "--namespace", namespace, "--kube-version", kubeVersion}, args...)
	if !slices.Contains(args, withHooks) {
		args = append(args, "--no-hooks")
	}
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == withHooks })
	out, errOut, err := helm(t, args...)
	require.NoError(t, err, errOut)

	var documents []string
	for _, document := range strings.Split("\n"+out, "\n---") {
		if document = strings.TrimSpace(document); document != "" {
			documents = append(documents, document)
		}
	}
	return documents
}

// decode turns documents into objects and fails on a field that the API does
// not know. Kinds that Kubernetes itself does not have are left out.
func decode(t *testing.T, documents []string) []runtime.Object {
	t.Helper()
	definitions.Do(func() { require.NoError(t, apiextensionsv1.AddToScheme(scheme.Scheme)) })
	decoder := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		kjson.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for _, document := range documents {
		if known, ok := decoded[document]; ok {
			objects = append(objects, known.DeepCopyObject())
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if runtime.IsNotRegisteredError(err) {
			require.Contains(t, document, "apiVersion: monitoring.coreos.com/v1\n")
			continue
		}
		require.NoError(t, err, "%s", document)
		decoded[document] = object.DeepCopyObject()
		objects = append(objects, object)
	}
	return objects
}

// decoded are the objects of documents that were decoded before: most are the same with
// whatever values. No test runs beside another.
var decoded = map[string]runtime.Object{}

// definitions are added to the kinds of Kubernetes once.
var definitions sync.Once

// all returns the objects of one type.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// one returns the only object of its type.
func one[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	require.Len(t, found, 1)
	return found[0]
}

// named returns the object of a type that has a name.
func named[T metav1.Object](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	for _, object := range objects {
		if typed, ok := object.(T); ok && typed.GetName() == name {
			return typed
		}
	}
	var none T
	require.Failf(t, "not there", "%T %s", none, name)
	return none
}

func TestLint(t *testing.T) {
	out, errOut, err := helm(t, "lint", "--strict", "--quiet", "--kube-version", kubeVersion, chart)
	require.NoError(t, err, "%s%s", out, errOut)
}

// isProfileCatalog finds the name of the ConfigMap of the catalog of profiles.
var isProfileCatalog = regexp.MustCompile(`(?m)^  name: \S+-profile-catalog$`)

func TestGolden(t *testing.T) {
	values, err := filepath.Glob("testdata/*.values.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, values)
	for _, file := range values {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			documents := render(t, chart, "--values", file, withHooks)
			decode(t, documents)
			documents = slices.DeleteFunc(documents, func(document string) bool {
				// TestDefinitions and TestCatalogInTheChart look at them.
				return strings.Contains(document, "\nkind: CustomResourceDefinition\n") || isProfileCatalog.MatchString(document)
			})
			golden.Equal(t, filepath.Join("testdata", name+".yaml"), strings.Join(documents, "\n---\n")+"\n")
		})
	}
}

// TestNotes reads what helm prints after the installation: on each server
// version that lacks something, and with each value that changes the text.
func TestNotes(t *testing.T) {
	// The notes are not among what `helm template` prints, and `helm install`
	// cannot be told a server version: a template in a copy of the chart can.
	copied := filepath.Join(t.TempDir(), chart)
	require.NoError(t, os.CopyFS(copied, os.DirFS(chart)))
	require.NoError(t, os.WriteFile(filepath.Join(copied, "templates", "notes.yaml"),
		[]byte("notes: |\n{{ include (print .Template.BasePath \"/NOTES.txt\") . | indent 2 }}\n"), 0o600))

	for name, args := range map[string][]string{
		"defaults":  nil,
		"server-36": {"--kube-version", "1.36.4-gke.100"},
		"simulate":  {"--values", "testdata/simulate.values.yaml"},
		"bare": {"--set", "deviceClasses.enabled=false,admissionPolicy.enabled=false,ignoreOtherSystems=true",
			"--set", "simulate.nodes.node-a=l4x4"},
	} {
		t.Run(name, func(t *testing.T) {
			documents := render(t, copied, append(args, "--show-only", "templates/notes.yaml")...)
			require.Len(t, documents, 1)
			var lines []string
			for line := range strings.Lines(documents[0]) {
				if strings.HasPrefix(line, "  ") || line == "\n" {
					lines = append(lines, strings.TrimRight(strings.TrimPrefix(line, "  "), " \n"))
				}
			}
			golden.Equal(t, filepath.Join("testdata", "notes-"+name+".txt"), strings.TrimSpace(strings.Join(lines, "\n"))+"\n")
		})
	}
}

// TestOneIdentity is about a policy that guards an account which nobody uses:
// the DaemonSet's account, the role's and the policy's are the same one.
func TestOneIdentity(t *testing.T) {
	for name, args := range map[string][]string{
		"defaults":          nil,
		"another name":      {"--set", "fullnameOverride=acme-gpu"},
		"another namespace": {"--namespace", "gpu-drivers"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := decode(t, render(t, chart, args...))
			plugin, controller := one[*appsv1.DaemonSet](t, objects), one[*appsv1.Deployment](t, objects)
			require.Len(t, all[*corev1.ServiceAccount](objects), 2)
			for _, user := range []struct {
				metav1.ObjectMeta
				account  string
				policies []string
			}{
				{plugin.ObjectMeta, plugin.Spec.Template.Spec.ServiceAccountName, []string{"-resourceslices", "-claim-status", "-gpunodes"}},
				{controller.ObjectMeta, controller.Spec.Template.Spec.ServiceAccountName, []string{"-controller-nodes"}},
			} {
				account := named[*corev1.ServiceAccount](t, objects, user.account)
				require.Equal(t, account.Namespace, user.Namespace)
				subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
				binding, local := named[*rbacv1.ClusterRoleBinding](t, objects, user.Name), named[*rbacv1.RoleBinding](t, objects, user.Name)
				require.Equal(t, subjects, binding.Subjects)
				require.Equal(t, subjects, local.Subjects)
				named[*rbacv1.ClusterRole](t, objects, binding.RoleRef.Name)
				named[*rbacv1.Role](t, objects, local.RoleRef.Name)
				for _, suffix := range user.policies {
					require.True(t, policyNamed(t, objects, suffix).appliesTo("system:serviceaccount:"+account.Namespace+":"+account.Name), suffix)
				}
			}
		})
	}
}

func TestRoleHasNoWildcards(t *testing.T) {
	for _, set := range [][]runtime.Object{decode(t, render(t, chart)), hooks(t)} {
		var rules []rbacv1.PolicyRule
		for _, role := range all[*rbacv1.ClusterRole](set) {
			rules = append(rules, role.Rules...)
		}
		for _, role := range all[*rbacv1.Role](set) {
			rules = append(rules, role.Rules...)
		}
		require.NotEmpty(t, rules)
		for _, rule := range rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				require.NotContains(t, word, "*")
			}
		}
	}
}

// TestOldServer: helm itself refuses a server that does not authorize changes of a claim's
// allocation, and names both versions.
func TestOldServer(t *testing.T) {
	_, errOut, err := helm(t, "template", "tranche", chart, "--kube-version", "1.35.9")
	require.Error(t, err)
	require.Contains(t, errOut, "1.36")
	require.Contains(t, errOut, "1.35.9")
}
