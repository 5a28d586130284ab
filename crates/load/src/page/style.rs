//! How pages look.

/// The palette is Okabe and Ito's, which people with any kind of colour blindness can tell apart; darker on light
/// ground where the original is too pale to read.
pub(super) const CSS: &str = "
:root{color-scheme:light dark;--ground:#fdfdfb;--ink:#1c2024;--soft:#5c6670;--rule:#d9dde1;--card:#f3f5f6;
--c0:#0072b2;--c1:#c25400;--c2:#007a5a;--c3:#a8548a;--c4:#8a6d00;--c5:#3a93c9;--c6:#444;--warn:#8a4b00;--band:#d8dce0}
@media(prefers-color-scheme:dark){:root{--ground:#14181c;--ink:#e8ebee;--soft:#9aa6b2;--rule:#333b43;--card:#1c2228;
--c0:#56b4e9;--c1:#f0883e;--c2:#2fc79b;--c3:#dd9cc4;--c4:#f0e442;--c5:#8fc7ff;--c6:#bbb;--warn:#f5b971;--band:#3a434c}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:68rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 1rem}
h2{font-size:1.2rem;margin:2.5rem 0 .5rem;padding-top:.8rem;border-top:1px solid var(--rule)}
p{margin:.4rem 0;overflow-wrap:anywhere}
.verdict{font-size:1.1rem;font-weight:600;max-width:60rem}
.verdict~.verdict{font-weight:400;font-size:1rem}
.about,.reading{color:var(--soft);font-size:.92rem;max-width:60rem}
.doubts{margin:.4rem 0;padding-left:1.2rem;color:var(--warn);overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.25rem .9rem .25rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th:first-child{text-align:left}thead th{color:var(--soft);font-weight:500}tbody th{font-weight:600}
td.words{white-space:normal;text-align:left;min-width:15rem}
.full{grid-column:1/-1}.grid td{padding:.3rem .6rem;border-left:2px solid var(--card)}
.grid thead th{padding:.25rem .6rem;white-space:normal;vertical-align:bottom}.grid tbody th{white-space:normal}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0;background:var(--card);border-radius:.5rem;padding:.8rem .8rem .4rem;min-width:0}
figcaption{font-weight:600;font-size:.95rem;overflow-wrap:anywhere}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.85rem;color:var(--soft);margin:.2rem 0}
.key span::before{content:attr(data-mark);font-weight:700;margin-right:.35rem}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .axis{fill:var(--soft);font-size:11px}
svg .grid{stroke:var(--rule);stroke-width:1}
.ratios table{width:100%;table-layout:fixed;font-size:.88rem}.ratios svg{height:18px}
.ratios th,.ratios td{padding:0;border:0;vertical-align:middle;line-height:1.15}
.ratios .name{width:11.5rem;text-align:left;font-weight:400;color:var(--ink);white-space:normal;overflow-wrap:anywhere;padding-right:.5rem}
.ratios .value{width:8.8rem;padding-left:.5rem}.ratios .value span,.ratios .group span,.ratios thead .value{color:var(--soft);font-weight:400}
.ratios .group{text-align:left;padding:.45rem 0 .1rem;font-weight:600;color:var(--ink);white-space:normal}
.ends{display:flex;justify-content:space-between;gap:1rem;font-size:.85rem;margin:.3rem 0 0}.ends span:last-child{text-align:right}
.band{fill:var(--band)}.one{stroke:var(--soft);stroke-width:1.5}.reach{stroke-width:2.5}.dot{stroke-width:2}
.better{stroke:var(--c0);fill:var(--c0)}.worse{stroke:var(--c1);fill:var(--c1)}.other{stroke:var(--ink);fill:var(--ink)}
.open{stroke:var(--soft);fill:var(--card)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);padding:.7rem;border-radius:.4rem;font-size:.85rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1.2rem;font-size:.9rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
a{color:var(--c0)}
.k0::before{color:var(--c0)}.k1::before{color:var(--c1)}.k2::before{color:var(--c2)}.k3::before{color:var(--c3)}
.k4::before{color:var(--c4)}.k5::before{color:var(--c5)}.k6::before{color:var(--c6)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}
path{fill:none;stroke-width:2}
@media(max-width:40rem){
main{padding-top:.8rem}h1{font-size:1.35rem;margin-bottom:.5rem}.verdict{font-size:1rem}
.ratios .name{width:6.8rem}.ratios .value{width:2.8rem}.ratios .value span{display:none}
.wide table,.wide tbody{display:block}.wide thead{display:none}
.wide tr{display:grid;grid-template-columns:1fr 1fr;gap:0 1rem;border-bottom:1px solid var(--rule);padding:.4rem 0}
.wide tbody th,.wide td{border:0;padding:.1rem .3rem;white-space:normal;overflow-wrap:anywhere}
.wide tbody th,.wide td.words{grid-column:1/-1}
.wide td{display:flex;flex-direction:column;text-align:left;min-width:0}
.wide td::before{content:attr(data-head);color:var(--soft);font-size:.8rem}
.wide tr:not(:has(td:nth-of-type(2))) td{grid-column:1/-1}.wide tr:not(:has(td:nth-of-type(2))) td::before{content:none}
.wide td.words{min-width:0}}
@media print{body{background:#fff;color:#000}figure{break-inside:avoid}}
";
