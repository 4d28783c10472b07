package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// configMapPatience is how long the start of the plugin waits for the ConfigMap with the device
// plugin's configurations. Without it, GPUs stay as they are.
const configMapPatience = 10 * time.Second

// devicePluginConfigs reads the configurations of the device plugin, from a folder or from a
// ConfigMap that is watched until ctx ends.
func (p *plugin) devicePluginConfigs(ctx context.Context) *profile.Source {
	source := profile.NewSource(p.DevicePluginConfigsDir)
	if p.DevicePluginConfigMap != "" {
		source = profile.NewConfigMapSource(p.DevicePluginConfigMap, watchConfigMap(ctx, p.client, p.DevicePluginConfigMap))
	}
	if p.DevicePluginUnlabelled {
		source.ForUnlabelled(p.DevicePluginDefault)
	}
	return source
}

// watchConfigMap watches a ConfigMap (namespace/name) until ctx ends. The function that it
// returns returns the content, or why it is not known.
func watchConfigMap(ctx context.Context, client kubernetes.Interface, configMap string) func() (map[string]string, error) {
	namespace, name, _ := strings.Cut(configMap, "/")
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}), informers.WithTransform(nodewatch.WithoutBulk))
	configMaps := factory.Core().V1().ConfigMaps()
	lister, synced := configMaps.Lister(), configMaps.Informer().HasSynced
	factory.StartWithContext(ctx)
	wait, cancel := context.WithTimeout(ctx, configMapPatience)
	defer cancel()
	if !cache.WaitForCacheSync(wait.Done(), synced) {
		klog.FromContext(ctx).Info("Cannot read the configurations of the device plugin yet", "configMap", configMap)
	}
	return func() (map[string]string, error) {
		if !synced() {
			return nil, fmt.Errorf("ConfigMap %s cannot be read: check that the namespace exists, and the Role and RoleBinding of the kubelet plugin in it", configMap)
		}
		// The only error is that there is none.
		object, err := lister.ConfigMaps(namespace).Get(name)
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s does not exist", configMap) //nolint:nilerr // see above
		}
		return object.Data, nil
	}
}
