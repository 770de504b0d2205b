package plugins

// WazeroVersion is what the key of the cache says.
const WazeroVersion = wazeroVersion
