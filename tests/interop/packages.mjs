// The SDKs live in the cache folder that ./check fills, not beside these scripts; an `import` would not find them.

import { createRequire } from 'node:module';

export const packages = createRequire(`${process.env.INTEROP_NPM}/package.json`);
